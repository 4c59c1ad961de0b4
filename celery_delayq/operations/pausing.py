"""Pause what falls due of a queue, of a task, or of all, and resume it."""

from __future__ import annotations

import math
from typing import Any

from celery.app.task import Task

from ..errors import InvalidOption
from ..services import Services
from ..store import Pause, lane_for

LONGEST_NAME = 512  # bytes
MIN_RATE, MAX_RATE = 0.001, 1_000_000.0

_RATE = f"a number of tasks a second from {MIN_RATE} to {MAX_RATE:.0f}"


def pause(
    services: Services,
    *,
    queue: str | None = None,
    task: str | Task | None = None,
    late: bool = False,
) -> None:
    """Hand over nothing of it until it is resumed; see :meth:`DelayQ.pause`."""
    queue, name = _checked(queue, task)
    if not isinstance(late, bool):
        raise InvalidOption("late", late, "true or false")
    services.entries.pause(lane_for(queue, name), queue or name or "", late=late)


def resume(
    services: Services,
    *,
    queue: str | None = None,
    task: str | Task | None = None,
    rate: float | None = None,
) -> bool:
    """Hand it over again; returns whether it was paused. See :meth:`DelayQ.resume`."""
    if rate is not None and not _is_rate(rate):
        raise InvalidOption("rate", rate, _RATE)
    return services.entries.resume(lane_for(*_checked(queue, task)), rate)


def pauses(services: Services) -> list[Pause]:
    """What is paused, or is coming back."""
    return services.entries.pauses()


def is_all_paused(services: Services) -> bool:
    """Whether everything is paused, and not coming back."""
    return any(not (one.queue or one.task or one.resumed) for one in pauses(services))


def _is_rate(rate: object) -> bool:
    if isinstance(rate, bool) or not isinstance(rate, (int, float)):
        return False
    return MIN_RATE <= rate <= MAX_RATE and math.isfinite(rate)


def _checked(queue: Any, task: Any) -> tuple[str | None, str | None]:
    """The names of a queue and of a task, one of them or neither.

    Raises:
        InvalidOption: both, or what is no name.
    """
    if queue is not None and task is not None:
        raise InvalidOption("task", task, "a queue or a task to pause, and not both")
    name = task.name if isinstance(task, Task) else task
    for option, value in (("queue", queue), ("task", name)):
        if value is not None and not _is_name(value):
            raise InvalidOption(option, value, f"a name of 1 to {LONGEST_NAME} bytes")
    return queue, name


def _is_name(value: Any) -> bool:
    try:
        return isinstance(value, str) and 0 < len(value.encode()) <= LONGEST_NAME
    except UnicodeEncodeError:
        return False
