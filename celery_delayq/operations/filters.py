"""``select``: checks a caller's filters and makes a selection."""

from __future__ import annotations

from typing import Any

from celery.app.task import Task

from .. import clock
from ..clock import TimeInput
from ..errors import InvalidOption
from ..services import HasServices
from ..store import Filter, State, checked_name
from .selection import Selection

_EXPECTED = (
    "tag=, task=, queue=, state=, after_due= or before_due=, which pick tasks, or all=True for "
    "every task"
)


def select(
    delayq: HasServices,
    *,
    tag: str | None = None,
    task: Task[..., Any] | str | None = None,
    queue: str | None = None,
    state: State | str | None = None,
    after_due: TimeInput | None = None,
    before_due: TimeInput | None = None,
    all: bool = False,
    cursor: str | None = None,
) -> Selection:
    """Select tasks to count, read or change; a task must match every given filter.

    Selecting by tag, or by a state other than ``SCHEDULED``, reads only the matches. Any other
    filter scans all waiting tasks: a few seconds of Redis's time per million, in short steps.

    Args:
        tag: Tasks with this tag.
        task: Calls of this task; a task or its name.
        queue: Tasks sent with this queue.
        state: Tasks in this state.
        after_due: Tasks due at this time or later.
        before_due: Tasks due before this time.
        all: Every task; required if no filter is given.
        cursor: Continue after the ``cursor`` of an earlier selection with the same filters.

    Raises:
        InvalidOption: no filter was given; or *cursor* is invalid, or belongs to another
            selection or store.
        InvalidDueTime: not a time.
    """
    picking = (tag, task, queue, state, after_due, before_due)
    if not any(one is not None for one in picking) and all is not True:
        raise InvalidOption("all", all, _EXPECTED)
    zone = delayq.services.timezone
    chosen = Filter(
        tag="" if tag is None else checked_name("tag", tag),
        task="" if task is None else _task_name(task),
        queue="" if queue is None else _queue_name(queue),
        state=None if state is None else _state(state),
        after_ms=None if after_due is None else clock.at(after_due, zone).ms,
        before_ms=None if before_due is None else clock.at(before_due, zone).ms,
    )
    return Selection(delayq.services, chosen, cursor)


def _task_name(task: Any) -> str:
    name = task if isinstance(task, str) else getattr(task, "name", None)
    if not isinstance(name, str) or not name:
        raise InvalidOption("task", task, "a task, or a task's name")
    return name


def _queue_name(queue: Any) -> str:
    if not isinstance(queue, str) or not queue:
        raise InvalidOption("queue", queue, "a queue's name")
    return queue


def _state(state: Any) -> State:
    try:
        return State(state.upper() if isinstance(state, str) else state)
    except ValueError:
        names = ", ".join(one.value for one in State)
        raise InvalidOption("state", state, f"a State, or one of {names}") from None
