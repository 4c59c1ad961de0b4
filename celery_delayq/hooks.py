"""Who is told of what happens to tasks: functions that are handed down.

    step --> its answer --> hook --> leaf events: signals, events

So no room that takes a step needs to know Celery.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any

from .logs import logger_of

logger = logger_of(__name__)

Hook = Callable[..., object]

IDS, LATENESS = 1, 2  # what a hand-over can be asked to tell, as bits


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


@dataclass(eq=False)
class Hooks:
    """Who is told of what happens to tasks; nobody, unless a function is given.

    A hook is called after the step, in the thread that took it. What it raises is logged.

    Attributes:
        scheduled: With what a step scheduled: a list of ``NewEntry`` and its due time in ms.
        unreplicated: With how many tasks were scheduled, and are not known to be on as many
            replicas as were asked for.
        rescheduled: With the task id and the due time in ms.
        edited: With the task id.
        cancelled: With what a step removed: a list of ``Cancelled``.
        missed: With ``"cancel"``, ``"reschedule"`` or ``"edit"``, and the ``Outcome``, of a call
            for one task that changed nothing.
        gave_way: As ``cancelled``, of what was not scheduled, as another task was kept; its id is
            known.
        skipped: With the task id and why, of one that was too late to leave.
        handed_over: With a list of the ids of what went to its queues.
        left: With ``"direct"`` or ``"relay"``, and of each that went so, how many seconds late.
        refused: With ``"direct"`` or ``"relay"``, and how many will be tried again.
        uncertain: With how many were published without an answer.
        reclaimed: With a list of the ids whose lease ran out.
        broker_down: Without anything: the broker took nothing, or nothing more.
        dead: With the task id and the reason.
        called: With the name of a script and how many seconds its call took, failed or not.
        hears_messages: Whether ``cancelled`` wants messages at present; it costs reading them.
        hears_handed_over: Whether ``handed_over`` does anything at present; it costs the ids.
        hears_left: Whether ``left`` does anything at present; it costs the times.
        hears_calls: Whether ``called`` does anything; it costs two looks at the clock.
    """

    scheduled: Hook = _nobody
    unreplicated: Hook = _nobody
    rescheduled: Hook = _nobody
    edited: Hook = _nobody
    cancelled: Hook = _nobody
    missed: Hook = _nobody
    gave_way: Hook = _nobody
    skipped: Hook = _nobody
    handed_over: Hook = _nobody
    left: Hook = _nobody
    refused: Hook = _nobody
    uncertain: Hook = _nobody
    reclaimed: Hook = _nobody
    broker_down: Hook = _nobody
    dead: Hook = _nobody
    called: Hook = _nobody
    hears_messages: Callable[[], bool] = _never
    hears_handed_over: Callable[[], bool] = _never
    hears_left: Callable[[], bool] = _never
    hears_calls: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        for name in _told():
            setattr(self, name, _guarded(getattr(self, name)))
        self.hears_calls = self.called is not _nobody

    @property
    def wants(self) -> int:
        """What a hand-over is to tell at present: the sum of what is wanted."""
        return IDS * self.hears_handed_over() + LATENESS * self.hears_left()

    def add(self, others: Hooks) -> None:
        """Tell *others* as well from now on, in every thread, whoever holds these."""
        for name in _told():
            mine, theirs = getattr(self, name), getattr(others, name)
            if theirs is not _nobody:
                setattr(self, name, theirs if mine is _nobody else _both(mine, theirs))
        self.hears_calls = self.called is not _nobody
        for name in _asked():
            mine, theirs = getattr(self, name), getattr(others, name)
            if theirs is not _never:
                setattr(self, name, theirs if mine is _never else _either(mine, theirs))


def _told() -> list[str]:
    return [one.name for one in fields(Hooks) if not one.name.startswith("hears_")]


def _asked() -> list[str]:
    return [one.name for one in fields(Hooks) if one.name.startswith("hears_") and one.init]


def _both(one: Hook, other: Hook) -> Hook:
    def told(*facts: Any) -> None:
        one(*facts)
        other(*facts)

    return told


def _either(one: Callable[[], bool], other: Callable[[], bool]) -> Callable[[], bool]:
    return lambda: one() or other()
