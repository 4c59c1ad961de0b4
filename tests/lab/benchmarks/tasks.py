"""The app of the worker processes; its broker comes in BENCHMARK_BROKER."""

import os
import time
from functools import cache

import redis

from tests.lab.benchmarks.apps import make_app
from tests.lab.benchmarks.names import STARTS

URL = os.environ["BENCHMARK_BROKER"]

app = make_app(URL, worker_prefetch_multiplier=1)


@app.task(name="bench.stamp", ignore_result=True)
def stamp(kind: str, due_ms: int) -> None:
    """Say when it started."""
    now_ms = time.time() * 1000
    _client().rpush(STARTS, f"{kind}:{now_ms - due_ms:.3f}")


@app.task(name="bench.spin", ignore_result=True)
def spin(seconds: float) -> None:
    """Keep a core busy."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        sum(range(1000))


@cache
def _client() -> redis.Redis:
    return redis.Redis.from_url(URL)
