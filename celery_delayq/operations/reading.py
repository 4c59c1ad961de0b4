"""Reads of scheduled tasks: one task, all tasks in due order, counts."""

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
        UnreadableRecord: this version cannot read its record.
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

    They include paused tasks, and refused tasks that will be retried.

    Args:
        after_due: Only tasks due at this time or later.
        before_due: Only tasks due earlier than this.
        limit: The maximum number of tasks.
        cursor: Continue after the task that has this ``cursor``; you can store it. A task whose
            due time stays the same is neither repeated nor left out, even if others come and go.

    Raises:
        InvalidOption: *cursor* is not a cursor, or belongs to another store.
        InvalidDueTime: *after_due* or *before_due* is not a time.
    """
    check_limit(limit, "tasks")
    services = delayq.services
    zone = services.timezone
    earliest_ms = 0 if after_due is None else clock.at(after_due, zone).ms
    end_ms = clock.MAX_DUE_MS + 1 if before_due is None else clock.at(before_due, zone).ms
    # islice cannot count further than maxsize, and no store holds that many.
    size = maxsize if limit is None else min(limit, maxsize)
    entries = services.entries.waiting(earliest_ms, end_ms, cursor=cursor, size=max(1, size))
    queues = QueueNames(services)
    found = (ScheduledTask.of(entry, services.app, queues.of(entry)) for entry in entries)
    return islice(found, size)


def check_limit(limit: int | None, things: str) -> None:
    """Raise ``InvalidOption`` if *limit* is not a valid number of *things*."""
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
    """When a task was delivered to its queue; ``None`` once 10,000 more tasks have left.

    For a key, this is the last task that left, as long as no other task waits under the key.
    """
    services = delayq.services
    when_ms = services.entries.handed_over_ms(target_of(task_id, key))
    return None if when_ms is None else clock.from_ms(when_ms)


def departure(
    services: Services, task_id: Named | None = None, *, key: str | None = None
) -> Departure | None:
    """Return how and when a task left the store; ``None`` if it waits, or left 10,000 tasks ago."""
    return services.entries.departure(target_of(task_id, key))
