"""What can be measured of a store that is in use, and costs it next to nothing."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass

from .. import clock
from ..errors import StoreError
from ..servers.connection import Connection, packed
from ..servers.facts import ask
from ..store.keys import Keys

TRIPS = 20
WEIGHED = ("records", "due", "relay", "parked", "templates", "template_uses", "tags", "holders")
LEAST_WEIGHED = 100  # entries; of fewer no mean is true of the next ones
# Redis looks ten times a second, by default, for a WAIT that has timed out.
WAIT_MS, WAITAOF_MS = 300, 2000  # by default a file is synced every second
GRACE = 3.0  # seconds after which there is no answer, on top of those
_WRITE = "redis.call('SET', KEYS[1], '') return redis.call('UNLINK', KEYS[1])"


@dataclass(frozen=True)
class Trips:
    """Some round trips to Redis, one after the other.

    Attributes:
        median_ms: Half of them took less.
        worst_ms: None took more.
        ahead: Seconds by which Redis's clock is ahead of this machine's, at least and at most.
    """

    median_ms: float
    worst_ms: float
    ahead: tuple[float, float]


def trips(connection: Connection) -> Trips:
    """Ask Redis for its time, again and again.

    Raises:
        StoreError: it does not tell.
    """
    took, least, most = [], float("-inf"), float("inf")
    question = packed(["TIME"])
    for _ in range(TRIPS):
        sent, began = time.time(), clock.monotonic()
        seconds, micros = connection.execute("doctor", question)
        took.append((clock.monotonic() - began) * 1000)
        theirs = int(seconds) + int(micros) / 1_000_000
        # It was read after the question was sent, and before the answer came.
        least, most = max(least, theirs - time.time()), min(most, theirs - sent)
    took.sort()
    # Of a clock that is set meanwhile nothing can be said; then the ends change places.
    low, high = sorted((least, most))
    return Trips(took[len(took) // 2], took[-1], (low, high))


def task_bytes(connection: Connection, shards: Sequence[Keys]) -> int | None:
    """Bytes that a waiting entry takes on average; ``None`` where Redis, or too few, do not tell.

    Raises:
        StoreUnavailable: no answer came in time.
    """
    counts = [ask(connection, "HLEN", keys["records"]) or 0 for keys in shards]
    if sum(counts) < LEAST_WEIGHED:
        return None
    size = 0
    for keys, some in zip(shards, counts, strict=True):
        # Where there are records, no answer means that Redis does not tell.
        sizes = [ask(connection, "MEMORY", "USAGE", keys[name], "SAMPLES", 100) for name in WEIGHED]
        if some and sizes[0] is None:
            return None
        size += sum(filter(None, sizes))
    return round(size / sum(counts))


def reached(connection: Connection, prefix: str, replicas: int, *, aof: bool) -> int | None:
    """How many replicas have a write on a scratch key, as soon as so many have, or time is over.

    Args:
        connection: To the master.
        prefix: What the key's name begins with.
        replicas: How many are waited for.
        aof: Whether they have to have it in their append-only files.

    Returns:
        ``None`` where Redis does not let this user write or wait.
    """
    key = f"{{{prefix}:doctor-{os.urandom(4).hex()}:0}}:list"
    ms = WAITAOF_MS if aof else WAIT_MS
    wait: list[str | int] = ["WAITAOF", 0, replicas, ms] if aof else ["WAIT", replicas, ms]
    commands = [packed(["EVAL", _WRITE, 1, key]), packed(wait)]
    try:
        told = connection.exchange("doctor", commands, clock.monotonic() + ms / 1000 + GRACE)[1]
    except StoreError:
        return None
    return int(told[1] if aof else told)
