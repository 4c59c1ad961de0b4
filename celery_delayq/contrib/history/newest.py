"""Reads the last events: what happened to tasks, and who did it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
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
_KINDS = tuple(what.value for what in What)
_CURSOR = re.compile(r"(\d{1,15}):(\d{1,9})")


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
        cursor: Its place in this list; pass it to ``history`` to continue behind it.
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
    cursor: str = field(default="", compare=False)


def history(
    delayq: HasServices,
    limit: int | None = None,
    *,
    of: Named | None = None,
    bulk: str | None = None,
    task: str | None = None,
    by: str | None = None,
    what: What | str | None = None,
    text: str | None = None,
    cursor: str | None = None,
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
        task: Only events of tasks with this name, also those in changes of many; and pauses of it.
        by: Only events whose author's name has this text.
        what: Only events of this kind.
        text: Only events of tasks whose id or key has this text, also those in changes of many.
        cursor: Only events behind the one that has this ``cursor``.

    Returns:
        Events with ``what``, ``when``, ``id``, ``key``, ``due``, ``task``, ``queue``,
        ``actor``, ``count``, ``bulk`` and ``cursor``, newest first. ``task`` is empty if this app
        has no such task, and none of its latest ones is in the store; ``queue`` is empty if it is
        neither one of the app's queues, nor paused, nor the queue of a task due next.

    Raises:
        InvalidOption: *limit* is not a whole number, or below 0; a filter is not text; or *bulk*,
            *what* or *cursor* is none.
    """
    services = delayq.services
    check_limit(limit, "events")
    wanted = _Wanted(of=of, bulk=bulk, task=task, by=by, what=what, text=text, cursor=cursor)
    rows = list(islice(wanted.of(_rows(services, limit, wanted)), limit))
    labels = {row.labels[0] for row, _ in rows if row.labels}
    tasks = _by_label(services.app.tasks)
    if task is not None:
        tasks[label_of(task)] = task
    if not labels <= tasks.keys():
        services.import_tasks()
        tasks |= _by_label(services.app.tasks)
        tasks |= _waiting_names(services, [row for row, _ in rows], labels - tasks.keys())
    queues = names_of(services, {row.labels[1] for row, _ in rows if row.labels})
    return [_event(row, at, tasks, queues) for row, at in rows]


class _Wanted:
    """Which events a call means; its arguments are those of :func:`history`."""

    def __init__(
        self,
        *,
        of: Named | None,
        bulk: str | None,
        task: str | None,
        by: str | None,
        what: What | str | None,
        text: str | None,
        cursor: str | None,
    ) -> None:
        if bulk is not None and (of is not None or not isinstance(bulk, str) or not bulk):
            raise InvalidOption("bulk", bulk, "the bulk of an Event, without a task")
        for name, given in (("task", task), ("by", by), ("text", text)):
            if not isinstance(given, (str, type(None))):
                raise InvalidOption(name, given, "text")
        if what is not None and what not in _KINDS:
            raise InvalidOption("what", what, f"one of {', '.join(_KINDS)}")
        self.id = None if of is None else checked_id(id_of(of))
        self.bulk, self.cursor = bulk, cursor
        self._task = None if task is None else (label_of(task), f"t{task}")
        self._by, self._text, self._what = (by or "").lower(), (text or "").lower(), what
        self._behind = _place_of(cursor)

    @property
    def is_of_tasks(self) -> bool:
        """Whether it is about tasks, also those of changes of many."""
        return self.id is not None or self._task is not None or self._text != ""

    @property
    def picks(self) -> bool:
        """Whether some of the latest events may not be meant."""
        return self.is_of_tasks or bool(self._by or self._what or self.cursor)

    def of(self, rows: Iterable[HistoryEntry]) -> Iterator[tuple[HistoryEntry, str]]:
        """Yield the events that are meant, each with its cursor."""
        number, last_ms = 0, -1
        behind_ms, behind = self._behind
        for row in rows:
            number = number + 1 if row.when_ms == last_ms else 1
            last_ms = row.when_ms
            is_behind = self.cursor is None or (-row.when_ms, number) > (-behind_ms, behind)
            if is_behind and self._has(row):
                yield row, f"{row.when_ms}:{number}"

    def _has(self, row: HistoryEntry) -> bool:
        return (
            (self.id is None or row.task_id == self.id)
            and (self._task is None or self._is_of_task(row, *self._task))
            and (self._what is None or row.what == self._what)
            and self._by in row.actor.lower()
            and any(self._text in text.lower() for text in (row.task_id, row.key))
        )

    @staticmethod
    def _is_of_task(row: HistoryEntry, label: bytes, lane: str) -> bool:
        return row.lane == lane or (row.labels is not None and row.labels[0] == label)


def _place_of(cursor: str | None) -> tuple[int, int]:
    """Return the time of an event, ms, and its number among those of that time."""
    found = _CURSOR.fullmatch(cursor or "0:0") if isinstance(cursor, (str, type(None))) else None
    if not found:
        raise InvalidOption("cursor", cursor, "the cursor of an Event")
    return int(found[1]), int(found[2])


def _rows(services: Services, limit: int | None, wanted: _Wanted) -> Iterable[HistoryEntry]:
    read, every = services.entries.history, LONGEST_HISTORY
    if wanted.bulk is not None:
        found = [each for each in read(changes=every, parts=every) if each.bulk == wanted.bulk]
        # Its lines, and then its tasks: the last of those have the same time.
        return sorted(found, key=lambda each: bool(each.task_id))
    if wanted.is_of_tasks:
        # Of a change of many, its tasks have names, and not its line; a pause may have one.
        rows = read(events=every, changes=every, parts=every)
        return (each for each in rows if each.task_id or each.lane)
    most = every if limit is None or wanted.picks else min(limit, every)
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


def _event(
    row: HistoryEntry, cursor: str, tasks: dict[bytes, str], queues: dict[bytes, str]
) -> Event:
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
        cursor=cursor,
    )
