"""Read what is scheduled: one task, all of them in due order, their counts."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from itertools import islice
from sys import maxsize

from .. import clock
from ..clock import TimeInput
from ..errors import InvalidOption
from ..services import HasServices, Services
from ..store import Counts, Departure, State
from .queues import QueueNames
from .scheduled_task import ScheduledTask
from .targets import Named, of_one_task, target_of


@of_one_task
def get(
    delayq: HasServices, task_id: Named | None = None, *, key: str | None = None
) -> ScheduledTask | None:
    """A scheduled task, by its id or its unique key; or ``None``.

    Raises:
        UnreadableRecord: it was written by a version that this one cannot read.
    """
    services = delayq.services
    entry = services.entries.find(target_of(task_id, key))
    if entry is None:
        return None
    return ScheduledTask.of(entry, services.app, QueueNames(services).of(entry))


def tasks(
    delayq: HasServices,
    *,
    after_due: TimeInput | None = None,
    before_due: TimeInput | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> Iterator[ScheduledTask]:
    """Waiting tasks in due order, read page by page as you iterate.

    What is paused, or was refused and will be tried again, waits as well.

    Args:
        after_due: Only tasks due at this time or later.
        before_due: Only tasks due earlier than this.
        limit: At most so many.
        cursor: Go on behind the task of an earlier list that has this ``cursor``. It can be
            stored. What comes and goes meanwhile makes no task come twice, or be left out,
            whose due time stays.

    Raises:
        InvalidOption: *cursor* is none, or that of another store.
        InvalidDueTime: *after_due* or *before_due* is no time.
    """
    check_limit(limit, "tasks")
    services = delayq.services
    zone = services.timezone
    earliest_ms = 0 if after_due is None else clock.at(after_due, zone).ms
    end_ms = clock.MAX_DUE_MS + 1 if before_due is None else clock.at(before_due, zone).ms
    # More than islice can count to is more than there can be.
    size = maxsize if limit is None else min(limit, maxsize)
    entries = services.entries.waiting(earliest_ms, end_ms, cursor=cursor, size=max(1, size))
    queues = QueueNames(services)
    found = (ScheduledTask.of(entry, services.app, queues.of(entry)) for entry in entries)
    return islice(found, size)


def check_limit(limit: int | None, things: str) -> None:
    """Raise where *limit* cannot be how many *things* one wants at most."""
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 0):
        raise InvalidOption("limit", limit, f"a whole number of {things} from 0")


def counts(delayq: HasServices) -> Counts:
    """How many tasks are in which state, and how many scanners are alive."""
    return delayq.services.entries.counts()


@of_one_task
def state(
    delayq: HasServices, task_id: Named | None = None, *, key: str | None = None
) -> State | None:
    """The state of a scheduled task, or ``None`` if it is not in the store."""
    services = delayq.services
    return services.entries.state(target_of(task_id, key))


@of_one_task
def handed_over(
    delayq: HasServices, task_id: Named | None = None, *, key: str | None = None
) -> datetime | None:
    """When a task went to its queue; ``None`` once that is more than 10,000 tasks ago.

    Under a key that is the last one which left, while no other waits.
    """
    services = delayq.services
    when_ms = services.entries.handed_over_ms(target_of(task_id, key))
    return None if when_ms is None else clock.from_ms(when_ms)


def departure(
    services: Services, task_id: Named | None = None, *, key: str | None = None
) -> Departure | None:
    """How and when a task left the store; ``None`` if it waits, or left 10,000 tasks ago."""
    return services.entries.departure(target_of(task_id, key))
