"""What a selection picks by, as a caller gives it."""

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
    """Pick tasks, to count, read or change them; every given filter must hold.

    By tag it costs what has the tag; by a state other than ``SCHEDULED``, what is in that
    state; else, what waits: some seconds of Redis's time for a million tasks, in short steps.

    Args:
        tag: It has this tag.
        task: It is of this task, or of the task of this name.
        queue: It was sent with this queue.
        state: It is in this state.
        after_due: It is due at this time or later.
        before_due: It is due before this time.
        all: Every task; needed if nothing else is given.
        cursor: Go on behind the ``cursor`` of an earlier selection by the same arguments.

    Raises:
        InvalidOption: nothing was given; or *cursor* is none, or one of another selection or
            store.
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
