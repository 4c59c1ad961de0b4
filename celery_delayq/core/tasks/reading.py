"""Reads of scheduled tasks: one task, all tasks in due order, counts."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from itertools import islice
from sys import maxsize
from typing import Any

from celery.app.task import Task

from .. import clock
from ..clock import TimeInput
from ..errors import InvalidOption
from ..services import HasServices, Services
from ..store import Counts, Departure, State
from ..store.counts import falling_due
from .filters import OneOf, check_limit, filter_of
from .queue_names import QueueNames
from .scheduled_task import ScheduledTask
from .targets import Named, of_one_task, target_of


@of_one_task
def get(
    delayq: HasServices, task_id: Named | None = None, *, key: str | None = None
) -> ScheduledTask | None:
    """A scheduled task, by its id or its unique key; or ``None``.

    Raises:
        UnreadableRecord: its record is damaged, or has the format of a later release.
    """
    services = delayq.services
    entry = services.entries.find(target_of(task_id, key))
    if entry is None:
        return None
    return ScheduledTask.of(entry, services.app, QueueNames(services).of(entry))


def tasks(
    delayq: HasServices,
    *,
    tag: OneOf[str] | None = None,
    task: OneOf[Task[..., Any] | str] | None = None,
    queue: OneOf[str] | None = None,
    after_due: TimeInput | None = None,
    before_due: TimeInput | None = None,
    newest_first: bool = False,
    limit: int | None = None,
    cursor: str | None = None,
) -> Iterator[ScheduledTask]:
    """Waiting tasks in due order, read page by page as you iterate.

    They include paused tasks, and refused tasks that will be retried. The filters are those of
    :meth:`select`, and take lists too.

    By queue or task, Redis looks at all waiting tasks up to the last one that you take, 200 at a
    time, and sends only the matches. By tag, the first step reads the due times of all matches, at
    most 100,000. A task that is rescheduled afterwards keeps the place of the due time that was
    read, so while others reschedule, the list may be out of order.

    Args:
        tag: Only tasks with this tag.
        task: Only calls of this task; a task or its name.
        queue: Only tasks sent with this queue.
        after_due: Only tasks due at this time or later.
        before_due: Only tasks due earlier than this.
        newest_first: Begin with the latest due time.
        limit: The maximum number of tasks.
        cursor: Continue after the task that has this ``cursor``; you can store it. A task whose
            due time stays the same is neither repeated nor left out, even if others come and go.

    Raises:
        InvalidOption: a filter, *newest_first* or *limit* is invalid; *cursor* is not a cursor, or
            belongs to another store. As you iterate: more than 100,000 waiting tasks have the tag.
        InvalidDueTime: *after_due* or *before_due* is not a time.
    """
    check_limit(limit, "tasks")
    if not isinstance(newest_first, bool):
        raise InvalidOption("newest_first", newest_first, "true or false")
    services = delayq.services
    zone = services.timezone
    chosen = filter_of(zone, tag=tag, task=task, queue=queue)
    earliest_ms = 0 if after_due is None else clock.at(after_due, zone).ms
    end_ms = clock.MAX_DUE_MS + 1 if before_due is None else clock.at(before_due, zone).ms
    # islice cannot count further than maxsize, and no store holds that many.
    size = maxsize if limit is None else min(limit, maxsize)
    entries = services.entries.waiting(
        earliest_ms,
        end_ms,
        chosen=chosen,
        newest_first=newest_first,
        cursor=cursor,
        size=max(1, size),
    )
    queues = QueueNames(services)
    found = (ScheduledTask.of(entry, services.app, queues.of(entry)) for entry in entries)
    return islice(found, size)


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
    """When a task was delivered to its queue; ``None`` if it was not, or the store forgot.

    For a key, this is the last task that left, as long as no other task waits under the key.
    """
    services = delayq.services
    when_ms = services.entries.handed_over_ms(target_of(task_id, key))
    return None if when_ms is None else clock.from_ms(when_ms)


def ahead(
    services: Services, span_ms: int, spans: int, after_ms: int = -1
) -> tuple[int, list[int]]:
    """Return the time now, in ms, and how many tasks fall due in each span; see the store's."""
    return falling_due(services.entries.shards, span_ms, spans, after_ms)


def departure(
    services: Services, task_id: Named | None = None, *, key: str | None = None
) -> Departure | None:
    """Return how and when a task left the store; ``None`` if it waits, or the store forgot."""
    return services.entries.departure(target_of(task_id, key))
