"""Reads the last events: scheduled, handed over, cancelled, replaced, skipped, dead, repaired."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from ...core.clock import from_ms
from ...core.services import Services
from ...core.settings import LONGEST_HISTORY
from ...core.store import HistoryEntry, What, label_of
from ...core.tasks.filters import check_limit
from ...core.tasks.scheduled_task import ScheduledTask
from ...operations.queues import names_of

_TRIES = 3  # tasks that are looked up for a name


@dataclass(frozen=True)
class Event:
    """Something that happened to a task.

    Attributes:
        what: The kind of event, which equals a string: ``What.HANDED_OVER == "handed_over"``.
        when: When it happened, by Redis's clock.
        id: The task's id.
        key: Its unique key, or empty.
        due: The task's due time at that moment; ``None`` if its record cannot be read.
        task: The task's name; empty if this app has no such task, and none of its latest ones is
            in the store.
        queue: The queue that it was sent to; empty if this app, its pauses and the tasks that are
            due next name no such queue.
    """

    what: What
    when: datetime
    id: str
    key: str
    due: datetime | None
    task: str
    queue: str


def history(services: Services, *, limit: int | None = None) -> list[Event]:
    """Return the last events, the newest first; see :meth:`DelayQ.history`."""
    check_limit(limit, "events")
    most = LONGEST_HISTORY if limit is None else min(limit, LONGEST_HISTORY)
    events = services.entries.history(most) if most else []
    labels = {event.labels[0] for event in events if event.labels}
    tasks = _by_label(services.app.tasks)
    if not labels <= tasks.keys():
        services.import_tasks()
        tasks = _by_label(services.app.tasks)
        tasks |= _waiting_names(services, events, labels - tasks.keys())
    queues = names_of(services, {event.labels[1] for event in events if event.labels})
    return [_event(event, tasks, queues) for event in events]


def _waiting_names(
    services: Services, events: Iterable[HistoryEntry], labels: set[bytes]
) -> dict[bytes, str]:
    """Return the names of tasks that only other processes know, if one of them is still here."""
    found: dict[bytes, str] = {}
    tries = Counter[bytes]()
    for event in events:
        label = event.labels[0] if event.labels else b""
        if label in labels and label not in found and tries[label] < _TRIES:
            tries[label] += 1
            entry = services.entries.find(event.task_id)
            name = entry and ScheduledTask.of(entry, services.app, "").task
            if name and label_of(name) == label:
                found[label] = name
    return found


def _by_label(names: Iterable[str]) -> dict[bytes, str]:
    return {label_of(name): name for name in names}


def _event(row: HistoryEntry, tasks: dict[bytes, str], queues: dict[bytes, str]) -> Event:
    task, queue = row.labels or (b"", b"")
    return Event(
        what=row.what,
        when=from_ms(row.when_ms),
        id=row.task_id,
        key=row.key,
        due=None if row.due_ms is None else from_ms(row.due_ms),
        task=tasks.get(task, ""),
        queue=queues.get(queue, ""),
    )
