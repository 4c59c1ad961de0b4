"""What happened last: scheduled, handed over, cancelled, replaced, skipped, dead, repaired."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from ..clock import from_ms
from ..operations.queues import names_of
from ..operations.reading import check_limit
from ..services import Services
from ..settings import LONGEST_HISTORY
from ..store import HistoryEntry, What, label_of


@dataclass(frozen=True)
class Event:
    """Something that happened to a task.

    Attributes:
        what: A text as well: ``What.HANDED_OVER == "handed_over"``.
        when: When it happened, by Redis's clock.
        id: The task's id.
        key: Its unique key, or empty.
        due: When it was due then; ``None`` for one whose record cannot be read.
        task: The task's name; empty where this app has none of that name.
        queue: The queue that it was sent with; empty where it is none of this app's, nothing of it
            is paused, and none of the tasks that are due next is of it.
    """

    what: What
    when: datetime
    id: str
    key: str
    due: datetime | None
    task: str
    queue: str


def history(services: Services, *, limit: int | None = None) -> list[Event]:
    """What happened last, the newest first; see :meth:`DelayQ.history`."""
    check_limit(limit, "events")
    most = LONGEST_HISTORY if limit is None else min(limit, LONGEST_HISTORY)
    events = services.entries.history(most) if most else []
    labels = {one.labels[0] for one in events if one.labels}
    tasks = _by_label(services.app.tasks)
    if not labels <= tasks.keys():
        services.import_tasks()
        tasks = _by_label(services.app.tasks)
    queues = names_of(services, {one.labels[1] for one in events if one.labels})
    return [_event(one, tasks, queues) for one in events]


def _by_label(names: Iterable[str]) -> dict[bytes, str]:
    return {label_of(name): name for name in names}


def _event(one: HistoryEntry, tasks: dict[bytes, str], queues: dict[bytes, str]) -> Event:
    task, queue = one.labels or (b"", b"")
    return Event(
        what=one.what,
        when=from_ms(one.when_ms),
        id=one.task_id,
        key=one.key,
        due=None if one.due_ms is None else from_ms(one.due_ms),
        task=tasks.get(task, ""),
        queue=queues.get(queue, ""),
    )
