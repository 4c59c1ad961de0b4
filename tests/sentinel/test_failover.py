"""A master that fails while callers schedule and cancel, and scanners hand over.

What is counted in the end is the new master's data alone. A direct hand-over is one script's, so
whatever replication lost of it, it lost on both sides: each task is in one place there.
"""

import time
from collections import Counter

import pytest

from tests.sentinel.faults import Course, assert_soon, demote, failover, kept, kill, silence
from tests.sentinel.work import Caller, Pulse, Told, all_due_has_left, arrived, schedule_row
from tests.support.waiting import eventually

MORE = 50  # calls after the first one on the new master


@pytest.mark.parametrize("fault", [kill, silence, failover, demote])
def test_all_are_at_work_again_soon_and_each_task_is_in_one_place(
    start_group, make_delayq, start_scanner, fault
):
    group = start_group()
    delayq = make_delayq(group)
    row = schedule_row(delayq, 150, first=0.0, every=0.02)
    start_scanner(make_delayq(group))
    with Caller(make_delayq(group)) as caller, Pulse() as pulse:
        eventually(lambda: len(caller.calls) > MORE, 20)

        course = fault(group)

        delayq = make_delayq(group)  # it has no link to the old one
        left = set(row) - set(arrived(course.new))
        first_move = eventually(lambda: left & set(arrived(course.new)) and time.monotonic(), 30)
        if course.lingers:
            course.await_demotion()
        first_call = eventually(lambda: first_kept(caller, course, delayq), 30)
        calls = len(caller.calls)
        eventually(lambda: len(caller.calls) > calls + MORE, 30)
    assert_soon(pulse, first_call.ended, course.known)
    assert_soon(pulse, first_move, course.scanner)
    assert caller.odd == []

    eventually(lambda: all_due_has_left(delayq), 30)
    at_queue, waiting = Counter(arrived(course.new)), {task.id for task in delayq.tasks()}
    scheduled, cancelled = (kept(caller.done(what), course) for what in ("schedule", "cancel"))
    tried = {call.task_id for call in caller.calls if call.what == "cancel"}
    assert max(at_queue.values()) == 1, "twice in the queue"
    assert not waiting & set(at_queue), "in the queue, and waiting"
    assert not cancelled & (waiting | set(at_queue)), "cancelled, and still there"
    assert {*row, *(scheduled - tried)} <= waiting | set(at_queue), "lost"
    assert list(delayq.check()) == []


def first_kept(caller: Caller, course: Course, delayq) -> Told | None:
    """The first call that the new master knows of, and that was made after its election."""
    at_queue = set(arrived(course.new))
    calls = (call for call in caller.done("schedule") if call.ended > course.elected)
    return next((one for one in calls if one.task_id in at_queue or delayq.get(one.task_id)), None)
