"""Pause what falls due of a queue, of a task, or of all, and resume it."""

from __future__ import annotations

import math
from typing import Any

from celery.app.task import Task

from ..errors import InvalidOption
from ..logs import logger_of
from ..services import HasServices, Services
from ..store import Pause, lane_for, lane_in_words

logger = logger_of(__name__)

LONGEST_NAME = 512  # bytes
MIN_RATE, MAX_RATE = 0.001, 1_000_000.0

_RATE = f"a number of tasks a second from {MIN_RATE} to {MAX_RATE:.0f}"


def pause(
    delayq: HasServices,
    *,
    queue: str | None = None,
    task: str | Task | None = None,
    late: bool = False,
) -> None:
    """Deliver nothing of a queue, of a task, or at all, until you resume it.

    It is in force when this returns. What a scanner is publishing this moment still goes. What
    is due meanwhile waits, and holds up nothing else; it can be cancelled, and rescheduled.

    Args:
        queue: The queue: the name that tasks were sent with, or their routing key.
        task: The task, or its name.
        late: Whether tasks with a grace count as late for that time.

    Raises:
        InvalidOption: not a name, or both a queue and a task.
        kombu.exceptions.OperationalError: Redis cannot be reached.
    """
    queue, name = _checked(queue, task)
    if not isinstance(late, bool):
        raise InvalidOption("late", late, "true or false")
    delayq.services.entries.pause(lane_for(queue, name), queue or name or "", late=late)
    logger.info("%s is paused", lane_in_words(queue, name))


def resume(
    delayq: HasServices,
    *,
    queue: str | None = None,
    task: str | Task | None = None,
    rate: float | None = None,
) -> bool:
    """Deliver again what :meth:`pause` held back; resume each pause as you made it.

    Args:
        queue: As for :meth:`pause`.
        task: As for :meth:`pause`.
        rate: At how many tasks a second what has fallen due goes, in the order of due times; by
            default as fast as it can. What falls due from now on goes at once.

    Returns:
        Whether it was paused, or coming back.

    Raises:
        InvalidOption: not a name, or not a rate from 0.001 to 1,000,000.
        kombu.exceptions.OperationalError: Redis cannot be reached.
    """
    if rate is not None and not _is_rate(rate):
        raise InvalidOption("rate", rate, _RATE)
    queue, name = _checked(queue, task)
    was_paused = delayq.services.entries.resume(lane_for(queue, name), rate)
    if was_paused:
        at = "" if rate is None else f", at {rate:g} tasks a second"
        logger.info("%s is resumed%s", lane_in_words(queue, name), at)
    return was_paused


def pauses(delayq: HasServices) -> list[Pause]:
    """The pauses, also those that end at a rate, each with the number of its due tasks."""
    return delayq.services.entries.pauses()


def is_all_paused(services: Services) -> bool:
    """Whether everything is paused, and not coming back."""
    return any(not (one.queue or one.task or one.resumed) for one in services.entries.pauses())


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
