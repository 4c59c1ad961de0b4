"""What a selection picks by, as a caller gives it."""

from __future__ import annotations

from typing import Any

from celery.app.task import Task

from .. import clock
from ..clock import TimeInput
from ..errors import InvalidOption
from ..services import Services
from ..store import Filter, State, checked_name
from .selection import Selection


def select(
    services: Services,
    *,
    tag: str | None = None,
    task: Task | str | None = None,
    queue: str | None = None,
    state: State | str | None = None,
    after_due: TimeInput | None = None,
    before_due: TimeInput | None = None,
    everything: bool = False,
    cursor: str | None = None,
) -> Selection:
    """Pick tasks; see :meth:`DelayQ.select`."""
    picking = (tag, task, queue, state, after_due, before_due)
    if all(one is None for one in picking) and everything is not True:
        raise InvalidOption("all", everything, "True, where nothing else is given to select by")
    zone = services.timezone
    chosen = Filter(
        tag="" if tag is None else checked_name("tag", tag),
        task="" if task is None else _task_name(task),
        queue="" if queue is None else _queue_name(queue),
        state=None if state is None else _state(state),
        after_ms=None if after_due is None else clock.at(after_due, zone).ms,
        before_ms=None if before_due is None else clock.at(before_due, zone).ms,
    )
    return Selection(services, chosen, cursor)


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
