"""Reads the last events: what happened to tasks, and who did it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from itertools import islice

from ...core.clock import from_ms
from ...core.errors import InvalidOption
from ...core.services import HasServices, Services
from ...core.settings import LONGEST_HISTORY
from ...core.store import HistoryEntry, What, label_of
from ...core.store.keys import checked_id
from ...core.tasks.reading import check_limit
from ...core.tasks.scheduled_task import Named, ScheduledTask, id_of
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
        actor: Who did it, see ``DelayQ.acting``; empty if nobody was named.
        count: How many tasks a change of many changed, which is one event: ``id`` is then empty. 0
            of a pause.
        bulk: The name of that change, also of the events of its tasks; else empty.
    """

    what: What
    when: datetime
    id: str
    key: str
    due: datetime | None
    task: str
    queue: str
    actor: str = ""
    count: int = 1
    bulk: str = ""


def history(
    delayq: HasServices,
    limit: int | None = None,
    *,
    of: Named | None = None,
    bulk: str | None = None,
) -> list[Event]:
    """The last events of tasks and pauses, each with the name of its author, if that is known.

    A change of many tasks is one event, with their number as its ``count``. Its ``bulk`` names
    it: ``history(bulk=event.bulk)`` returns the event, and one for each of its tasks.

    The setting ``delayq_history`` turns this on, and says how many to keep of each kind: events
    of tasks that were changed by themselves; changes of many, and pauses; and tasks of such
    changes. So a change of many pushes no task's event out. If its own tasks are too many, the
    latest are kept.

    Args:
        limit: The maximum number of events.
        of: Only the events of this task, also those in changes of many.
        bulk: Only this change of many, and then its tasks.

    Returns:
        Events with ``what``, ``when``, ``id``, ``key``, ``due``, ``task``, ``queue``,
        ``actor``, ``count`` and ``bulk``, newest first. ``task`` is empty if this app has no
        such task, and none of its latest ones is in the store; ``queue`` is empty if it is
        neither one of the app's queues, nor paused, nor the queue of a task due next.

    Raises:
        InvalidOption: *limit* is not a whole number, or below 0; or *bulk* is no such name.
    """
    services = delayq.services
    check_limit(limit, "events")
    events = list(islice(_rows(services, limit, of, bulk), limit))
    labels = {event.labels[0] for event in events if event.labels}
    tasks = _by_label(services.app.tasks)
    if not labels <= tasks.keys():
        services.import_tasks()
        tasks = _by_label(services.app.tasks)
        tasks |= _waiting_names(services, events, labels - tasks.keys())
    queues = names_of(services, {event.labels[1] for event in events if event.labels})
    return [_event(event, tasks, queues) for event in events]


def _rows(
    services: Services, limit: int | None, of: Named | None, bulk: str | None
) -> Iterable[HistoryEntry]:
    read, every = services.entries.history, LONGEST_HISTORY
    if bulk is not None:
        if of is not None or not isinstance(bulk, str) or not bulk:
            raise InvalidOption("bulk", bulk, "the bulk of an Event, without a task")
        found = [each for each in read(changes=every, parts=every) if each.bulk == bulk]
        # Its lines, and then its tasks: the last of those have the same time.
        return sorted(found, key=lambda each: bool(each.task_id))
    if of is not None:
        own_id = checked_id(id_of(of))
        return (each for each in read(events=every, parts=every) if each.task_id == own_id)
    most = every if limit is None else min(limit, every)
    return read(events=most, changes=most) if most else []


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
        task=row.lane[1:] if row.lane[:1] == "t" else tasks.get(task, ""),
        queue=row.lane[1:] if row.lane[:1] == "q" else queues.get(queue, ""),
        actor=row.actor,
        count=row.count,
        bulk=row.bulk,
    )
