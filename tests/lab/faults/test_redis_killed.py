"""A Redis that is killed during scheduling and hand-over keeps all acknowledged entries."""

import json
import threading

from celery_delayq.errors import StoreUnavailable
from tests.support.waiting import eventually

KILLS = 3


def test_acknowledged_entries_are_kept_through_every_crash(start_redis, make_delayq):
    server = start_redis("--appendonly", "yes", "--appendfsync", "always")
    delayq = make_delayq(server.url(), task_publish_retry=False, delayq_safety_interval=0.2)
    acknowledged, unknown, over = [], set(), threading.Event()

    def schedule():
        number = 0
        while not over.is_set():
            number += 1
            try:
                # Half of it is due at once, half of it much later.
                when = 1_000_000_000 if number % 2 else 4_000_000_000
                delayq.note.apply_async(task_id=f"{number}", delayq_at=when)
                acknowledged.append(f"{number}")
            except StoreUnavailable:
                unknown.add(f"{number}")

    caller, scanner = threading.Thread(target=schedule), delayq.scanner()
    caller.start()
    scanner.start()
    for _ in range(KILLS):
        seen = len(acknowledged)
        eventually(lambda seen=seen: len(acknowledged) > seen + 200)
        server.kill()
        server.start()
    over.set()
    caller.join()
    # All due entries are moved; the others are due in the year 2096.
    eventually(lambda: (delayq.counts().next_due_ms or 4e12) > 3e12)
    scanner.stop()

    client = server.client()
    moved = [json.loads(one)["headers"]["id"] for one in client.lrange("celery", 0, -1)]
    waiting = [one.id for one in delayq.tasks()]
    assert len(set(moved)) == len(moved), "handed over twice"
    assert not set(moved) & set(waiting), "handed over and still waiting"
    kept = set(moved) | set(waiting)
    assert set(acknowledged) <= kept
    assert kept <= set(acknowledged) | unknown
    assert {int(one) % 2 for one in moved} == {1}
