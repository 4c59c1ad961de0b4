"""What ``DelayQ`` tells: tasks, their counts, what is paused, what happened last."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from celery.app.task import Context, Task
from celery.result import AsyncResult

from .. import clock
from ..clock import TimeInput, from_ms
from ..errors import InvalidOption
from ..leaves import leaf
from ..message.headers import DUE_HEADER
from ..operations import pausing, reading
from ..operations.health import MAX_DEAD, MAX_OVERDUE, health
from ..operations.status import Status, status
from ..operations.targets import Named
from ..operations.task import ScheduledTask
from ..services import Services
from ..store import Counts, Pause, State
from .calls import scheduled
from .results import ScheduledResult

if TYPE_CHECKING:
    from ..care.misfits import Finding
    from ..history import Event


class Reads:
    """The part of ``DelayQ`` that reads what waits, and changes nothing."""

    services: Services

    def pauses(self) -> list[Pause]:
        """What is paused, or coming back, and how many tasks are due there."""
        return pausing.pauses(self.services)

    def get(self, task_id: Named | None = None, *, key: str | None = None) -> ScheduledTask | None:
        """A scheduled task, by its id or its unique key; or ``None``.

        Raises:
            UnreadableRecord: it was written by a version that this one cannot read.
        """
        return reading.find(self.services, task_id, key=key)

    def result(
        self, task_id: Named | None = None, *, key: str | None = None
    ) -> ScheduledResult[Any] | None:
        """The result of a scheduled task, with its due time, as the call returned it; or ``None``.

        Of a chain it is the last task's, without its parents.

        Raises:
            UnreadableRecord: it was written by a version that this one cannot read.
        """
        task = reading.find(self.services, task_id, key=key)
        return None if task is None else _result_of(self.services, task)

    def tasks(
        self,
        *,
        after_due: TimeInput | None = None,
        before_due: TimeInput | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Iterator[ScheduledTask]:
        """Waiting tasks in due order, read page by page while one iterates.

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
        return reading.waiting(
            self.services,
            after_due=after_due,
            before_due=before_due,
            limit=limit,
            cursor=cursor,
        )

    def counts(self) -> Counts:
        """How many tasks are in which state, and how many scanners are alive."""
        return reading.counts(self.services)

    def status(self) -> Status:
        """How the store stands: counts, pauses, scanners by name, what waits queue by queue.

        It reads in short steps, and looks at 10,000 waiting tasks at most.

        Returns:
            A :class:`~celery_delayq.operations.status.Status`, with ``facts()`` for JSON.
        """
        return status(self.services)

    def health(
        self,
        *,
        max_overdue: float = MAX_OVERDUE,
        max_dead: int = MAX_DEAD,
        here: bool = False,
    ) -> list[str]:
        """What is wrong, a sentence each; nothing if what is scheduled will be handed over in time.

        It is wrong that no scanner is alive or that they have another broker than this app, that a
        task has been overdue for too long or too many are dead, that the store cannot be read, or
        is used in another way than by this process.
        What is paused is not overdue. It takes two calls of the store, and no broker.

        Args:
            max_overdue: For how many seconds a task may be overdue, from 0.
            max_dead: How many tasks may be dead, from 0.
            here: Ask for nothing but a scanner of this very host that is alive, as a probe of a
                worker's container does.

        Raises:
            InvalidOption: *max_overdue*, *max_dead* or *here* cannot be what it is.
            InvalidSetting: the app's configuration is wrong.
        """
        return health(self.services, max_overdue=max_overdue, max_dead=max_dead, here=here)

    def state(self, task_id: Named | None = None, *, key: str | None = None) -> State | None:
        """Where a scheduled task stands, or ``None`` if it is not in the store."""
        return reading.state(self.services, task_id, key=key)

    def handed_over(
        self, task_id: Named | None = None, *, key: str | None = None
    ) -> datetime | None:
        """When a task went to its queue; ``None`` once that is more than 10,000 tasks ago.

        Under a key that is the last one which left, while no other waits.
        """
        return reading.handed_over(self.services, task_id, key=key)

    def history(self, limit: int | None = None) -> list[Event]:
        """What happened last: scheduled, handed over, cancelled, replaced, skipped, dead, repaired.

        It is kept where the setting ``delayq_history`` says how many.

        Args:
            limit: At most so many.

        Returns:
            Events with ``what``, ``when``, ``id``, ``key``, ``due``, ``task`` and ``queue``, the
            newest first. The task is empty where this app has none of that name; the queue, where
            it is none of the app's, is not paused, and no task that is due next is of it.

        Raises:
            InvalidOption: *limit* is no whole number, or below 0.
        """
        events: list[Event] = leaf("history").history(self.services, limit=limit)
        return events

    def check(self) -> Iterator[Finding]:
        """What in the store does not fit together, read slice by slice while one iterates.

        It changes nothing, and reports nothing that is merely under way. A template that counts
        too many records is found only while nothing is scheduled.

        Returns:
            Findings with ``kind``, ``id``, ``sentence``, and ``repair``: what :meth:`repair` does
            about it, in words, or nothing. None where all is well.
        """
        found: Iterator[Finding] = leaf("care").check(self.services)
        return found

    def dump(self) -> Iterator[dict[str, Any]]:
        """All that the store keeps of tasks, and what is paused, read while one iterates.

        It changes nothing. What is scheduled meanwhile is not in it, and what leaves meanwhile may
        be: before a store moves, pause all, and stop what schedules.

        Returns:
            Dictionaries that ``json.dumps`` takes: a first one, ``kind`` ``dump``, which says what
            it is; of each pause and task one; and a last one, ``kind`` ``end``, which counts them.
            A dump without its last one is not whole.

        Raises:
            StoreDiffers: the store was emptied meanwhile.
            kombu.exceptions.OperationalError: Redis cannot be reached.
        """
        lines: Iterator[dict[str, Any]] = leaf("care").dump(self.services)
        return lines

    def due_of(self, request: Context | Task[..., Any]) -> datetime | None:
        """When the task of *request* (``self.request`` in a bound task) was due, if scheduled.

        Raises:
            InvalidOption: it is neither a task's request nor a task that runs.
        """
        if isinstance(request, Task):
            request = request.request
        if not isinstance(request, Context):
            hint = "; of a result it is .due" if isinstance(request, AsyncResult) else ""
            raise InvalidOption("request", request, f"self.request, in a bound task{hint}")
        due_ms = request.get(DUE_HEADER)
        if due_ms is None:
            return None
        # What was released left before it was due.
        return from_ms(clock.to_ms(request.eta, timezone.utc) if request.eta else due_ms)


def _result_of(services: Services, task: ScheduledTask) -> ScheduledResult[Any]:
    """The result of what the store holds, as the call returned it."""
    app, ids = services.app, [task.id]
    if task.is_canvas:
        with suppress(TypeError, ValueError):  # arguments that cannot be read
            ids = leaf("canvas").task_ids((task.args,))
    result = app.AsyncResult(task.id)
    if ids == [task.id]:
        result.ignored = task.ignores_result
    else:
        result = app.GroupResult(task.id, [app.AsyncResult(one) for one in ids])
    return scheduled(result, services, clock.to_ms(task.due, services.timezone))
