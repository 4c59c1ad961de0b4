"""Read what is scheduled: one task, all of them in due order, their counts."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from itertools import islice
from sys import maxsize

from .. import clock
from ..clock import TimeInput
from ..errors import InvalidOption
from ..services import Services
from ..store import Counts, State
from .queues import QueueNames
from .targets import Named, who_is
from .task import ScheduledTask


def find(
    services: Services, task_id: Named | None = None, *, key: str | None = None
) -> ScheduledTask | None:
    """One task, or ``None`` if it is not in the store."""
    entry = services.entries.find(who_is(services, task_id, key))
    if entry is None:
        return None
    return ScheduledTask.of(entry, services.app, QueueNames(services).of(entry))


def waiting(
    services: Services,
    *,
    after_due: TimeInput | None = None,
    before_due: TimeInput | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> Iterator[ScheduledTask]:
    """Waiting tasks in due order, read page by page; see :meth:`DelayQ.tasks`."""
    check_limit(limit, "tasks")
    zone = services.timezone
    earliest_ms = 0 if after_due is None else clock.at(after_due, zone).ms
    end_ms = clock.MAX_DUE_MS + 1 if before_due is None else clock.at(before_due, zone).ms
    # More than islice can count to is more than there can be.
    size = maxsize if limit is None else min(limit, maxsize)
    entries = services.entries.waiting(earliest_ms, end_ms, cursor=cursor, size=max(1, size))
    queues = QueueNames(services)
    tasks = (ScheduledTask.of(entry, services.app, queues.of(entry)) for entry in entries)
    return islice(tasks, size)


def check_limit(limit: int | None, things: str) -> None:
    """Raise where *limit* cannot be how many *things* one wants at most."""
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 0):
        raise InvalidOption("limit", limit, f"a whole number of {things} from 0")


def counts(services: Services) -> Counts:
    """How many tasks are in which state, and how many scanners are alive."""
    return services.entries.counts()


def state(
    services: Services, task_id: Named | None = None, *, key: str | None = None
) -> State | None:
    """Where a task stands, or ``None`` if it is not in the store."""
    return services.entries.state(who_is(services, task_id, key))


def handed_over(
    services: Services, task_id: Named | None = None, *, key: str | None = None
) -> datetime | None:
    """When a task went to its queue, while a tombstone tells."""
    when_ms = services.entries.handed_over_ms(who_is(services, task_id, key))
    return None if when_ms is None else clock.from_ms(when_ms)
