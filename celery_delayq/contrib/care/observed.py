"""Measures a store in use, at almost no cost."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass

from ...core import clock
from ...core.errors import StoreError
from ...core.servers.connection import Connection, packed
from ...core.servers.risks import ask
from ...core.store.keys import Keys

TRIPS = 20
WEIGHED = ("records", "due", "relay", "parked", "templates", "template_uses", "tags", "holders")
LEAST_WEIGHED = 100  # entries; the mean of fewer is a poor estimate
# By default Redis checks ten times a second whether a WAIT has timed out.
WAIT_MS, WAITAOF_MS = 300, 2000  # by default a file is synced every second
GRACE = 3.0  # further seconds to wait for the answer
_WRITE = "redis.call('SET', KEYS[1], '') return redis.call('UNLINK', KEYS[1])"


@dataclass(frozen=True)
class Trips:
    """Some round trips to Redis, one after the other.

    Attributes:
        median_ms: The median.
        worst_ms: The longest.
        ahead: Least and most seconds by which Redis's clock is ahead of this machine's.
    """

    median_ms: float
    worst_ms: float
    ahead: tuple[float, float]


def trips(connection: Connection) -> Trips:
    """Measure round trips by reading Redis's time repeatedly.

    Raises:
        StoreError: Redis does not answer with its time.
    """
    took, least, most = [], float("-inf"), float("inf")
    question = packed(["TIME"])
    for _ in range(TRIPS):
        sent, began = time.time(), clock.monotonic()
        seconds, micros = connection.execute("doctor", question)
        took.append((clock.monotonic() - began) * 1000)
        theirs = int(seconds) + int(micros) / 1_000_000
        # Redis read its clock after the request was sent, and before the answer came.
        least, most = max(least, theirs - time.time()), min(most, theirs - sent)
    took.sort()
    # If a clock was set meanwhile, the ends may have changed places.
    low, high = sorted((least, most))
    return Trips(took[len(took) // 2], took[-1], (low, high))


def task_bytes(connection: Connection, shards: Sequence[Keys]) -> int | None:
    """Return the mean bytes of a waiting entry; ``None`` if unknown, or if there are too few.

    Raises:
        StoreUnavailable: no answer came in time.
    """
    counts = [ask(connection, "HLEN", keys["records"]) or 0 for keys in shards]
    if sum(counts) < LEAST_WEIGHED:
        return None
    size = 0
    for keys, some in zip(shards, counts, strict=True):
        # If there are records, no answer means that Redis refuses the command.
        sizes = [ask(connection, "MEMORY", "USAGE", keys[name], "SAMPLES", 100) for name in WEIGHED]
        if some and sizes[0] is None:
            return None
        size += sum(filter(None, sizes))
    return round(size / sum(counts))


def reached(connection: Connection, keys: Keys, replicas: int, *, aof: bool) -> int | None:
    """Write a scratch key, and return how many replicas have it once *replicas* do or time is up.

    Args:
        connection: The connection to the master.
        keys: The keys of a shard there.
        replicas: How many replicas to wait for.
        aof: Whether they must have it in their append-only files.

    Returns:
        The number; ``None`` if this user may not write or wait.
    """
    key = f"{keys['due']}-doctor-{os.urandom(4).hex()}"
    ms = WAITAOF_MS if aof else WAIT_MS
    wait: list[str | int] = ["WAITAOF", 0, replicas, ms] if aof else ["WAIT", replicas, ms]
    commands = [packed(["EVAL", _WRITE, 1, key]), packed(wait)]
    try:
        replies = connection.exchange("doctor", commands, clock.monotonic() + ms / 1000 + GRACE)[1]
    except StoreError:
        return None
    return int(replies[1] if aof else replies)
