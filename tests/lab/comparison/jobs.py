"""The work of every job: note that it ran, and when, in the Redis of COMPARISON_NOTES."""

import os
import time
from functools import cache

import redis

RAN = "ran"


def note(label: str) -> None:
    """Append the label, and the time by this machine's clock."""
    now = time.time()
    _client().rpush(RAN, f"{label} {now:.4f}")


@cache
def _client() -> redis.Redis:
    return redis.Redis.from_url(os.environ["COMPARISON_NOTES"])
