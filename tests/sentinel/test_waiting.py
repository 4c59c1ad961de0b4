"""``delayq_wait_replicas``: tasks confirmed by a replica are there once it is the master."""

import threading

from celery_delayq.errors import StoreUnavailable
from tests.sentinel.faults import kill
from tests.sentinel.work import FAR
from tests.support.waiting import eventually

BEFORE, AFTER = 30, 3  # calls: the first take some milliseconds, the others all of the wait


class Calls(threading.Thread):
    """Schedules all the time, and keeps the number of replicas in each result."""

    def __init__(self, delayq):
        super().__init__()
        self.said, self.failed = {}, []
        self._delayq = delayq
        self._over = threading.Event()

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self.join()

    def run(self):
        while not self._over.is_set():
            try:
                result = self._delayq.note.delay_until(FAR)
            except StoreUnavailable as error:
                self.failed.append(error)
            else:
                self.said[result.id] = result.replicas


def test_a_task_confirmed_by_the_replica_outlives_the_master(start_group, make_delayq):
    group = start_group(replicas=1)
    with Calls(make_delayq(group, delayq_wait_replicas=(1, 0.1))) as calls:
        # On a busy machine, the replica misses some of them.
        eventually(lambda: list(calls.said.values()).count(1) >= BEFORE)
        before = len(calls.said)
        course = kill(group)
        # The new master has no replica.
        eventually(lambda: list(calls.said.values())[before:].count(0) >= AFTER)
    kept = {task.id for task in make_delayq(group).tasks()}
    # Each sentinel learns of it at its own time.
    eventually(lambda: group.master is course.new, 30)
    assert {task_id for task_id, replicas in calls.said.items() if replicas} <= kept
