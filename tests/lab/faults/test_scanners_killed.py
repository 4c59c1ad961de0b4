"""Scanners that are killed while they move many due entries: nothing lost, nothing twice."""

import json
import math
from dataclasses import replace
from unittest import mock

from tests.support.waiting import PATIENCE, eventually

COUNT = 20_000
SLICE = 200  # entries per call
KILLS = 4
LONG_AGO = 1_000_000_000


def fill(delayq):
    """Schedule many tasks that are due, the quick way: one call's record under many ids."""
    entries = delayq.services.entries
    with mock.patch.object(entries, "schedule", wraps=entries.schedule) as schedule:
        for number in range(2):  # the second one of a kind shares its template with the first
            delayq.note.apply_async(task_id=f"{number:05}", delayq_at=LONG_AGO)
        (new, what), _ = schedule.call_args
    what = replace(what, until=math.inf)  # each call has its own
    ids = [f"{number:05}" for number in range(COUNT)]
    for first in range(2, COUNT, SLICE):
        some = ids[first : first + SLICE]
        entries.schedule([replace(new[0], task_id=task_id) for task_id in some], what)
    return ids


def test_scanners_killed_at_any_moment_lose_and_repeat_nothing(
    client, redis_url, make_delayq, start_scanner
):
    conf = {"broker_url": redis_url, "delayq_batch_size": 5}
    delayq = make_delayq(redis_url, delayq_timeout=PATIENCE)
    ids = fill(delayq)

    # Several at once: each is killed at a different moment of the hand-over.
    marks = [COUNT * number // (KILLS + 1) for number in range(1, KILLS + 1)]
    victims = [start_scanner(conf) for _ in range(KILLS)]
    for victim, mark in zip(victims, marks, strict=True):
        eventually(lambda mark=mark: client.llen("celery") >= mark, timeout=60)
        victim.kill()
    scanner = delayq.scanner()
    scanner.start()
    eventually(lambda: delayq.counts().scheduled == 0, timeout=60)
    scanner.stop()

    arrived = [json.loads(one)["headers"]["id"] for one in client.lrange("celery", 0, -1)]
    assert sorted(arrived) == ids
    counts = delayq.counts()
    assert (counts.in_flight, counts.dead) == (0, 0)
    left = {key for key in client.keys("{delayq*") if client.type(key) != b"none"}
    assert b"{delayq:0}:records" not in left
    assert b"{delayq:0}:due" not in left
