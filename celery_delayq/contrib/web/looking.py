"""The list of tasks; where Redis has to look for them, in steps of a second.

range of due times --ahead--> a window of some 20,000 tasks --DelayQ.tasks--> those that match
^                                  |
+------------- the rest -----------+     after a second: in the next request
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timezone
from functools import partial
from itertools import accumulate
from typing import Any, NamedTuple

from ...core import clock
from ...core.clock import from_ms, to_ms
from ...core.errors import InvalidOption
from ...core.services import Services
from ...core.store import State
from ...core.tasks.reading import ahead
from ...core.tasks.scheduled_task import ScheduledTask
from ...core.threads import gather
from ...operations import finding
from . import words
from .visit import Visit
from .words import picked

SHOWN = 50  # tasks on one page of a list
SECOND = 1.0
LOOK = 20_000  # tasks that Redis looks at before the time is checked
SPANS = 500
_READ = 10  # tasks that are read at once, each through a connection of its own


class Found(NamedTuple):
    """A page of a list.

    Attributes:
        tasks: The tasks.
        further: The values in the URL of the next page; empty if this is the last one.
        looked_to: How far it looked, if it was cut: tasks due until then, or how many records.
    """

    tasks: list[ScheduledTask]
    further: dict[str, Any]
    looked_to: datetime | int | None = None


def listed(visit: Visit, *, cursor: str | None = None) -> Found:
    """Return the tasks of a page of the list, from the filters in the URL."""
    picking = picked(visit)
    newest, states = order_of(visit) == "latest", picking.get("state")
    if states is not None and states != [State.SCHEDULED.value]:
        selection = visit.delayq.select(**picking, cursor=cursor)
        cursors = ((task, selection.cursor) for task in selection)
        return _sifted(cursors, _keeps(visit, None))
    picking.pop("state", None)
    text = bool(_texts(visit))
    if not (text or states) and "tag" not in picking and picking.keys() & {"task", "queue"}:
        return look(visit, picking, newest=newest, cursor=cursor)
    limit = None if text or states else SHOWN + 1
    tasks = visit.delayq.tasks(**picking, newest_first=newest, limit=limit, cursor=cursor)
    keeps = _keeps(visit, State.SCHEDULED if states else None)
    return _sifted(((task, task.cursor) for task in tasks), keeps)


def _keeps(visit: Visit, state: State | None) -> Callable[[ScheduledTask], bool]:
    """Return whether a list keeps a task: by its state, and by the texts in its arguments."""
    texts = _texts(visit)
    if texts and visit.hides:
        raise InvalidOption("text", texts[0], "no search in arguments, as they are hidden here")

    def keeps(task: ScheduledTask) -> bool:
        if state is not None and task.state is not state:
            return False
        arguments = words.arguments(visit, task).lower() if texts else ""
        return all(text in arguments for text in texts)

    return keeps


def _texts(visit: Visit) -> list[str]:
    """Return the texts in the URL, which must all be in the arguments."""
    return [text.lower() for text in visit.request.args.getlist("text") if text]


def _sifted(
    tasks: Iterable[tuple[ScheduledTask, str]], keeps: Callable[[ScheduledTask], bool]
) -> Found:
    """Return a page of those that it keeps, from tasks with their cursors; look for a second."""
    until, kept, behind = clock.monotonic() + SECOND, list[ScheduledTask](), ""
    for task, cursor in tasks:
        if len(kept) == SHOWN:
            return Found(kept, {"cursor": behind})
        behind = cursor
        if keeps(task):
            kept.append(task)
        if clock.monotonic() >= until:
            return Found(kept, {"cursor": behind}, task.due)
    return Found(kept, {})


def named(visit: Visit, task_id: str, *, place: str) -> Found:
    """Return the task with an id; if there is none, those whose id begins so, for a second."""
    task = None if place else visit.delayq.get(task_id)
    if task is not None or (len(task_id) < finding.SHORTEST and not place):
        return Found([task] if task else [], {})
    services = visit.delayq.services
    ids = finding.ids_with(services, task_id, seconds=SECOND, most=SHOWN, place=place)
    tasks = list[ScheduledTask]()
    for first in range(0, len(ids.found), _READ):
        read = gather(*(partial(visit.delayq.get, each) for each in ids.found[first:][:_READ]))
        tasks += [task for task in read if task]
    further = {"id": task_id, "cursor": ids.place} if ids.place else {}
    return Found(tasks, further, ids.looked_at if ids.place else None)


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


def _range(visit: Visit, picking: dict[str, Any], *, newest: bool) -> tuple[int, int]:
    """Return the due times between which to look: the first one, and just after the last one."""
    ends = gather(*(partial(_end, visit, newest=newest) for newest in (False, True)))
    if ends[0] is None or ends[1] is None:
        return 0, 0
    first, end = _ms(ends[0].due), _ms(ends[1].due) + 1
    if "after_due" in picking:
        first = max(first, _ms(picking["after_due"]))
    if "before_due" in picking:
        end = min(end, _ms(picking["before_due"]))
    at = visit.number("at", default=end if newest else first)
    return (first, min(end, at + 1)) if newest else (max(first, at), end)


def _end(visit: Visit, *, newest: bool) -> ScheduledTask | None:
    return next(visit.delayq.tasks(newest_first=newest, limit=1), None)


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
