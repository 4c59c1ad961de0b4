"""The base of the drivers of Python peers. Runs in the peer's environment.

    python -m tests.lab.benchmarks.peers.NAME URL schedule COUNT   -> {"seconds": ...}
                                          drain    COUNT       -> {"seconds": ...}
                                          lateness COUNT SPAN  -> {"late_ms": [...]}
                                          idle     SECONDS     -> ready, then nothing

Each task has a label with its due time as an argument, so each message in a peer's queue shows when
it was due.
"""

import json
import multiprocessing
import random
import re
import sys
import time
from datetime import datetime, timezone
from threading import Event
from typing import Protocol

import redis

DAY = 86_400


class Peer(Protocol):
    """The interface of a driver; it is made with the server's URL.

    Attributes:
        queue: The list in which due tasks arrive.
    """

    queue: str

    def schedule(self, due: datetime, label: str) -> None:
        """Schedule one task, as its manual says."""

    def hold(self, due: datetime, label: str) -> None:
        """Bring one task to its waiting place, if scheduling does not."""

    def move(self) -> None:
        """Move due tasks, for ever, as its own process does."""


def run(peer: Peer) -> None:
    """Run the action of the command line, and print the result as JSON."""
    url, action, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    client = redis.Redis.from_url(url)
    mover = multiprocessing.get_context("fork").Process(target=peer.move, daemon=True)
    try:
        if action == "schedule":
            found = {"seconds": _schedule(peer, count)}
        elif action == "drain":
            found = {"seconds": _drain(peer, mover, client, count)}
        elif action == "lateness":
            found = {"late_ms": _lateness(peer, mover, client, count, float(sys.argv[4]))}
        else:
            mover.start()
            print("ready", flush=True)
            Event().wait(count)
            found = {}
    finally:
        if mover.pid:
            mover.kill()
            mover.join()
    print(json.dumps(found), flush=True)


def _schedule(peer: Peer, count: int) -> float:
    started = time.perf_counter()
    for due, label in _shuffled(time.time() + DAY, count):
        peer.schedule(due, label)
    return time.perf_counter() - started


def _drain(peer: Peer, mover, client: redis.Redis, count: int) -> float:
    for due, label in _shuffled(time.time() - DAY, count):
        peer.hold(due, label)
    started = time.perf_counter()
    mover.start()
    while client.llen(peer.queue) < count and time.perf_counter() - started < 120:
        Event().wait(0.005)
    if client.llen(peer.queue) < count:
        raise TimeoutError(f"{client.llen(peer.queue)} of {count} were moved in two minutes")
    return time.perf_counter() - started


def _lateness(peer: Peer, mover, client: redis.Redis, count: int, span: float) -> list[float]:
    mover.start()
    start_ms = int((time.time() + 2) * 1000)
    for due_ms in random.sample(range(start_ms, start_ms + int(span * 1000)), count):
        peer.hold(_time(due_ms), f"due-{due_ms}")
    late = []
    while len(late) < count and (popped := client.brpop([peer.queue], timeout=span + 30)):
        now_ms = time.time() * 1000
        late.append(now_ms - int(re.search(rb"due-(\d{13})", popped[1])[1]))
    return late


def _shuffled(start: float, count: int) -> list[tuple[datetime, str]]:
    first = int(start * 1000)
    chosen = random.sample(range(first, first + 2 * count), count)
    return [(_time(due_ms), f"due-{due_ms}") for due_ms in chosen]


def _time(due_ms: int) -> datetime:
    return datetime.fromtimestamp(due_ms / 1000, timezone.utc)
