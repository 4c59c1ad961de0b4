"""Writing entries into the store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import count, islice
from typing import Any

from .. import clock
from ..errors import DelayQError
from ..services import Services
from ..store import NewEntry, Receipt
from .request import Ready


def write(
    services: Services,
    new: Sequence[NewEntry],
    policy: Mapping[str, Any],
    *,
    supersede: bool = False,
) -> list[Receipt | DelayQError]:
    """Schedule entries in one step, repeated as *policy* says while Redis cannot be reached.

    ``delayq_timeout`` is for all of that together.

    Returns:
        As :meth:`Entries.schedule`.
    """
    until = clock.monotonic() + services.settings.timeout
    pauses = _pauses(**policy)
    answers = services.entries.schedule(new, supersede=supersede, until=until, pauses=pauses)
    for answer in answers:
        if isinstance(answer, Receipt):
            services.hooks.scheduled(answer.task_id, answer.due_ms)
    return answers


def _pauses(
    max_retries: int | None = None,
    interval_start: float = 2,
    interval_step: float = 2,
    interval_max: float = 30,
) -> Iterator[float]:
    """The pauses of Celery's retry policy, with kombu's defaults."""
    growing = (min(interval_start + n * interval_step, interval_max) for n in count())
    return islice(growing, max_retries)


def write_one(services: Services, ready: Ready) -> Receipt:
    """Schedule one entry.

    Raises:
        DelayQError: why it was not scheduled.
    """
    running = services.app.current_worker_task
    # The running task schedules itself anew: what may have brought it here gives way.
    supersede = running is not None and running.request.id == ready.new.task_id
    (answer,) = write(services, [ready.new], ready.policy, supersede=supersede)
    if isinstance(answer, DelayQError):
        raise answer
    return answer
