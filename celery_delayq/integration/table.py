"""What ``DelayQ`` does with what waits: the table of its operations.

Each is a function of :mod:`celery_delayq.operations`, and a method here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from celery.app.task import Context, Task
from celery.result import AsyncResult

from .. import clock
from ..clock import from_ms
from ..errors import InvalidOption
from ..leaves import leaf
from ..message.headers import DUE_HEADER
from ..operations import changing, editing, filters, pausing, reading
from ..operations.health import health as health_now
from ..operations.scheduled_task import ScheduledTask
from ..operations.status import status as status_now
from ..operations.targets import Named, of_one_task
from ..services import Services
from .results import ScheduledResult, scheduled

if TYPE_CHECKING:
    from ..care.inconsistencies import Finding, Repaired
    from ..care.loading import Lines, Loaded
    from ..history.newest import Event


class Operations:
    """The part of ``DelayQ`` that reads and changes what waits.

    A task is named by what scheduling returned, or by its id, as text or a UUID; or, with ``key``,
    by its unique key.
    """

    services: Services

    # One task.
    get = reading.get
    state = reading.state
    handed_over = reading.handed_over
    cancel = changing.cancel
    reschedule = changing.reschedule
    run_now = changing.run_now
    retry = changing.retry
    remove = changing.remove
    edit = editing.edit

    # Many, or all of them.
    select = filters.select
    tasks = reading.tasks
    counts = reading.counts
    status = status_now
    health = health_now
    pause = pausing.pause
    resume = pausing.resume
    pauses = pausing.pauses

    @of_one_task
    def result(
        self, task_id: Named | None = None, *, key: str | None = None
    ) -> ScheduledResult[Any] | None:
        """The result of a scheduled task, with its due time, as the call returned it; or ``None``.

        Of a chain it is the last task's, without its parents.

        Raises:
            UnreadableRecord: it was written by a version that this one cannot read.
        """
        task = self.get(task_id, key=key)
        return None if task is None else _result_of(self.services, task)

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

    # What leaves of this package do.

    def history(self, limit: int | None = None) -> list[Event]:
        """The last events: scheduled, handed over, cancelled, replaced, skipped, dead, repaired.

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
        """The inconsistencies of the store, read slice by slice as you iterate.

        It changes nothing, and reports nothing that is merely under way. A template that counts
        too many records is found only while nothing is scheduled.

        Returns:
            Findings with ``kind``, ``id``, ``sentence``, and ``repair``: what :meth:`repair` does
            about it, in words, or nothing. None where all is well.
        """
        found: Iterator[Finding] = leaf("care").check(self.services)
        return found

    def dump(self) -> Iterator[dict[str, Any]]:
        """All that the store keeps of tasks, and all pauses, read as you iterate.

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

    def repair(self, finding: Finding) -> Repaired:
        """Mend a finding of :meth:`check`, if it is still there; nothing else is touched.

        All that the finding is about is looked at again in the step that mends it. A wrong count of
        a template takes a look at all records.

        Args:
            finding: One of this app's store.

        Returns:
            ``what`` became of it: ``done``; ``back``: the task waits again; ``dead``, with the
            ``reason``; ``lost``: its record is gone, and now its place is; ``gone``: it was so no
            more, and nothing was done; or ``left``, the only one that is false: such a thing is
            only told.

        Raises:
            InvalidOption: it is no finding.
        """
        repaired: Repaired = leaf("care").repair(self.services, finding)
        return repaired

    def load(
        self,
        lines: Lines,
        *,
        skip_existing: bool = False,
        paused: bool = False,
        dry_run: bool = False,
        progress: Callable[[Loaded], object] | None = None,
    ) -> Loaded:
        """Store the lines of :meth:`dump`: ids, due times, keys, tags, attempts, dead tasks stay.

        What was paused is paused here, before anything else. Where each message goes is found out
        for this app's broker. What is here already, and is the same task, stays as it is; what has
        left this store since it was scheduled does not come back. So the same call can be repeated;
        where the store is not paused, until 10,000 tasks have left it.

        Args:
            lines: What :meth:`dump` gave, or the same as lines of JSON, or an open file of them.
                Consumed in slices of 100.
            skip_existing: Leave out what has the id, or the key, of another task that waits here.
            paused: Pause all, before anything else.
            dry_run: Only look at the lines, and say how many tasks can be read: not whether their
                ids and keys are taken.
            progress: Called after each slice with what there is so far.

        Returns:
            How many were ``loaded``, are ``here`` already, had ``left`` and were ``skipped``; why
            others were ``refused``; and which were ``unreadable`` when they were dumped. It is true
            where none of either is.

        Raises:
            InvalidDump: it is none, was cut, or has a line that is damaged. What came before that
                line is loaded.
            kombu.exceptions.OperationalError: Redis cannot be reached. What was loaded stays.
        """
        loaded: Loaded = leaf("care").load(
            self.services,
            lines,
            skip_existing=skip_existing,
            paused=paused,
            dry_run=dry_run,
            progress=progress,
        )
        return loaded


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
