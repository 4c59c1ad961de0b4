"""Writing entries into the store, repeated while Redis does not answer."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kombu.utils.functional import retry_over_time

from .. import clock
from ..errors import DelayQError, StoreUnavailable
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
    """Schedule entries in one step, repeated as *policy* says while Redis does not answer.

    ``delayq_timeout`` is for all of that together: no attempt begins after it, and none goes on.

    Returns:
        As :meth:`Entries.schedule`.
    """
    operation, attempts = os.urandom(4).hex().encode(), itertools.count()
    until = clock.monotonic() + services.settings.timeout

    def step() -> list[Receipt | DelayQError]:
        again = next(attempts) > 0
        return services.entries.schedule(
            new, operation=operation, again=again, supersede=supersede, until=until
        )

    def pause(error: StoreUnavailable, pauses: Iterator[float], _: int) -> float:
        seconds = next(pauses)
        if clock.monotonic() + seconds >= until:
            raise error
        return seconds

    if policy.get("max_retries") == 0:
        answers = step()
    else:
        answers = retry_over_time(step, StoreUnavailable, **{**policy, "errback": pause})
    for answer in answers:
        if isinstance(answer, Receipt):
            services.hooks.scheduled(answer.task_id, answer.due_ms)
    return answers


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
