"""A master fails once under a caller and a scanner: how soon they work again, and the losses.

The final count uses only the new master's data. A direct delivery is one script, so replication
loses both sides of it or none: each task is in one place there.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from celery_delayq import DelayQ
from tests.sentinel.faults import Course, Fault, kept
from tests.sentinel.work import Caller, Pulse, Told, all_due_has_left, arrived, schedule_row
from tests.support.sentinels import SentinelGroup
from tests.support.waiting import eventually

MORE = 50  # calls before the fault, and after the first one on the new master


@dataclass
class Trial:
    """The outcome.

    Attributes:
        caller: Seconds from the election until the end of the first call that the new master has;
            time in which the machine stood still does not count.
        scanner: The same for a delivery.
        raw: Both, including that time.
        problems: A sentence for each thing that is wrong.
    """

    caller: float
    scanner: float
    raw: tuple[float, float]
    problems: list[str]


def tried(
    group: SentinelGroup,
    new_delayq: Callable[[], DelayQ],
    start_scanner: Callable[[DelayQ], object],
    fault: Fault,
) -> Trial:
    """Let the master of a fresh group fail; *new_delayq* makes its clients."""
    row = schedule_row(new_delayq(), 150, first=0.0, every=0.02)
    start_scanner(new_delayq())
    with Caller(new_delayq()) as caller, Pulse() as pulse:
        eventually(lambda: len(caller.calls) > MORE)
        course = fault(group)
        before = set(arrived(course.new))
        delayq = new_delayq()  # it has no link to the old one
        # On a slow machine, these tasks may already have been delivered.
        delayq.note.apply_async(task_id="one more", delayq_at=1_000_000_000)
        left = {*row, "one more"} - before
        moved = eventually(lambda: left & set(arrived(course.new)) and time.monotonic(), 30)
        called = eventually(lambda: _first_kept(caller, course, delayq), 30).ended
        if course.lingers:
            # A client that reached the new master once does not go back.
            course.gone = called
        calls = len(caller.calls)
        eventually(lambda: len(caller.calls) > calls + MORE, 30)
    eventually(lambda: all_due_has_left(delayq), 30)
    return Trial(
        called - course.elected - pulse.lost(course.elected),
        moved - course.elected - pulse.lost(course.elected),
        (called - course.elected, moved - course.elected),
        list(_problems(caller, course, delayq, [*row, "one more"])),
    )


def _first_kept(caller: Caller, course: Course, delayq: DelayQ) -> Told | None:
    """The first call that the new master has and that returned after its election."""
    at_queue = set(arrived(course.new))
    calls = (call for call in caller.done("schedule") if call.ended > course.elected)
    return next((one for one in calls if one.task_id in at_queue or delayq.get(one.task_id)), None)


def _problems(caller: Caller, course: Course, delayq: DelayQ, row: list[str]) -> Iterator[str]:
    at_queue, waiting = Counter(arrived(course.new)), {task.id for task in delayq.tasks()}
    there = waiting | set(at_queue)
    wanted, cancelled = kept(caller, course)
    yield from (f"{each} is twice in the queue" for each in at_queue if at_queue[each] > 1)
    yield from (f"{each} is in the queue, and waits" for each in waiting & set(at_queue))
    yield from (f"{each} was cancelled, and is still there" for each in cancelled & there)
    yield from (f"{each} is lost" for each in {*row, *wanted} - there)
    yield from (f"a caller heard {error!r}" for error in caller.odd)
    yield from (f"check: {finding}" for finding in delayq.check())
