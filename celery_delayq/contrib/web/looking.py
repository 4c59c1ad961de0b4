"""Lists waiting tasks by task or queue, for which Redis has to look, in steps of a second.

range of due times --ahead--> a window of some 20,000 tasks --DelayQ.tasks--> those that match
^                                  |
+------------- the rest -----------+     after a second: in the next request
"""

from __future__ import annotations

from datetime import datetime, timezone
from itertools import accumulate, islice
from typing import Any, NamedTuple

from ...core import clock
from ...core.clock import from_ms, to_ms
from ...core.errors import InvalidOption
from ...core.services import Services
from ...core.store import State
from ...core.tasks.reading import ahead
from ...core.tasks.scheduled_task import ScheduledTask
from .asked import picked
from .visit import Visit

SHOWN = 50  # tasks on one page of a list
SECOND = 1.0
LOOK = 20_000  # tasks that Redis looks at before the time is checked
SPANS = 500


class Found(NamedTuple):
    """A page of a list.

    Attributes:
        tasks: The tasks.
        further: The values in the URL of the next page; empty if this is the last one.
        looked_to: How far it looked, if it was cut.
    """

    tasks: list[ScheduledTask]
    further: dict[str, Any]
    looked_to: datetime | None = None


def listed(visit: Visit, *, cursor: str | None = None) -> Found:
    """Return the tasks of a page of the list, from the filters in the URL."""
    picking = picked(visit)
    newest, states = order_of(visit) == "latest", picking.get("state")
    if states == [State.SCHEDULED.value]:
        del picking["state"]
        return look_for_scheduled(visit, picking, newest=newest, cursor=cursor)
    if states is not None:
        selection = visit.delayq.select(**picking, cursor=cursor)
        iterator = iter(selection)
        rows, behind = list(islice(iterator, SHOWN)), selection.cursor
        return Found(rows, {"cursor": behind} if next(iterator, None) else {})
    if "tag" not in picking and picking.keys() & {"task", "queue"}:
        return look(visit, picking, newest=newest, cursor=cursor)
    limit = SHOWN + 1
    rows = list(visit.delayq.tasks(**picking, newest_first=newest, limit=limit, cursor=cursor))
    further = {"cursor": rows[SHOWN - 1].cursor} if len(rows) > SHOWN else {}
    return Found(rows[:SHOWN], further)


def order_of(visit: Visit) -> str:
    """Return the order in the URL: ``latest``, or nothing.

    Raises:
        InvalidOption: it is another.
    """
    order = visit.request.args.get("order", "")
    if order not in ("", "latest"):
        raise InvalidOption("order", order, "latest, or nothing")
    return order


def look(visit: Visit, picking: dict[str, Any], *, newest: bool, cursor: str | None) -> Found:
    """Look for a page of tasks, for a second.

    The URL has ``at``, the due time in ms at which to go on.
    """
    first, end = _range(visit, picking, newest=newest)
    until, tasks = clock.monotonic() + SECOND, list[ScheduledTask]()
    while first < end:
        low, high = _window(visit.delayq.services, first, end, newest=newest)
        window = {**picking, "after_due": from_ms(low), "before_due": from_ms(high)}
        left = SHOWN + 1 - len(tasks)
        tasks += visit.delayq.tasks(**window, newest_first=newest, limit=left, cursor=cursor)
        if len(tasks) > SHOWN:
            last = tasks[SHOWN - 1]
            return Found(tasks[:SHOWN], {"cursor": last.cursor, "at": _ms(last.due)})
        first, end = (first, low) if newest else (high, end)
        if first < end and clock.monotonic() >= until:
            at = end - 1 if newest else first
            return Found(tasks, {"at": at}, from_ms(at))
    return Found(tasks, {})


def look_for_scheduled(
    visit: Visit, picking: dict[str, Any], *, newest: bool, cursor: str | None
) -> Found:
    """Look for a page of waiting tasks that are not paused, for a second."""
    until, tasks, behind = clock.monotonic() + SECOND, list[ScheduledTask](), ""
    for task in visit.delayq.tasks(**picking, newest_first=newest, cursor=cursor):
        if len(tasks) == SHOWN:
            return Found(tasks, {"cursor": behind})
        behind = task.cursor
        if task.state is State.SCHEDULED:
            tasks.append(task)
        if clock.monotonic() >= until:
            return Found(tasks, {"cursor": behind}, task.due)
    return Found(tasks, {})


def _range(visit: Visit, picking: dict[str, Any], *, newest: bool) -> tuple[int, int]:
    """Return the due times between which to look: the first one, and just after the last one."""
    ends = [next(visit.delayq.tasks(newest_first=way, limit=1), None) for way in (False, True)]
    if ends[0] is None or ends[1] is None:
        return 0, 0
    first, end = _ms(ends[0].due), _ms(ends[1].due) + 1
    if "after_due" in picking:
        first = max(first, _ms(picking["after_due"]))
    if "before_due" in picking:
        end = min(end, _ms(picking["before_due"]))
    at = visit.number("at", default=end if newest else first)
    return (first, min(end, at + 1)) if newest else (max(first, at), end)


def _window(services: Services, first: int, end: int, *, newest: bool) -> tuple[int, int]:
    """Return the begin of a range, or with *newest* its end, with :data:`LOOK` tasks or fewer.

    More fall due in one millisecond, if that is how many there are.
    """
    while True:
        span = max(1, -(-(end - first) // SPANS))
        begin = end - SPANS * span if newest else first
        _, counts = ahead(services, span, SPANS, max(0, begin - 1))
        sums = accumulate(reversed(counts) if newest else counts)
        fitting = sum(so_far <= LOOK for so_far in sums)
        if fitting or span == 1:
            width = span * max(fitting, 1)
            return (max(first, end - width), end) if newest else (first, min(end, first + width))
        first, end = (end - span, end) if newest else (first, first + span)


def _ms(time: datetime) -> int:
    return to_ms(time, timezone.utc)
