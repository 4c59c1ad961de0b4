"""Who is told of what happens to tasks: functions that are handed down.

    step --> its answer --> hook --> integration/signals.py: signals, events

So no room that takes a step needs to know Celery.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from .logs import logger_of

logger = logger_of(__name__)

Hook = Callable[..., object]


def _nobody(*_: object) -> None:
    """What a hook does that nobody has set."""


def _never() -> bool:
    return False


def _guarded(hook: Hook) -> Hook:
    """*hook*, whose exceptions are logged: the step that it is told of is done."""

    def told(*facts: Any) -> None:
        try:
            hook(*facts)
        except Exception:
            logger.exception("a hook failed; what it was told of is done")

    return hook if hook is _nobody else told


@dataclass(frozen=True)
class Hooks:
    """Who is told of what happens to tasks; nobody, unless a function is given.

    A hook is called after the step, in the thread that took it. What it raises is logged.

    Attributes:
        scheduled: With what a step scheduled: a list of ``NewEntry`` and its due time in ms.
        rescheduled: With the task id and the due time in ms.
        edited: With the task id.
        cancelled: With what a step removed: a list of ``Cancelled``.
        gave_way: The same of what was not scheduled, as another task was kept; its id is known.
        skipped: With the task id and why, of one that was too late to leave.
        handed_over: With a list of the ids of what went to its queues.
        dead: With the task id and the reason.
        hears_messages: Whether ``cancelled`` wants messages at present; it costs reading them.
        hears_handed_over: Whether ``handed_over`` does anything at present; it costs the ids.
    """

    scheduled: Hook = _nobody
    rescheduled: Hook = _nobody
    edited: Hook = _nobody
    cancelled: Hook = _nobody
    gave_way: Hook = _nobody
    skipped: Hook = _nobody
    handed_over: Hook = _nobody
    dead: Hook = _nobody
    hears_messages: Callable[[], bool] = _never
    hears_handed_over: Callable[[], bool] = _never

    def __post_init__(self) -> None:
        for one in fields(self):
            if not one.name.startswith("hears_"):
                object.__setattr__(self, one.name, _guarded(getattr(self, one.name)))
