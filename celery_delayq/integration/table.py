"""The table of ``DelayQ``'s operations on scheduled tasks.

Most are functions of :mod:`celery_delayq.operations`, which become methods here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from importlib import import_module
from typing import TYPE_CHECKING, Any

from celery.app.task import Context, Task
from celery.result import AsyncResult

from .. import clock
from ..clock import from_ms
from ..errors import InvalidOption
from ..leaves import leaf
from ..message.headers import DUE_HEADER
from ..operations.scheduled_task import ScheduledTask
from ..operations.targets import Named, of_one_task
from ..services import Services
from .results import ScheduledResult, scheduled

if TYPE_CHECKING:
    from ..care.inconsistencies import Finding, Repaired
    from ..care.loading import Lines, Loaded
    from ..history.newest import Event
    from ..operations import (
        changing,
        editing,
        freeing,
        health,
        pausing,
        reading,
        selecting,
        status,
    )


else:

    class _Later:
        """A module of :mod:`celery_delayq.operations`, imported when a method of it is used."""

        def __init__(self, name: str) -> None:
            self._name = f"celery_delayq.operations.{name}"

        def __getattr__(self, name: str) -> _LaterMethod:
            return _LaterMethod(self._name, name)

    class _LaterMethod:
        def __init__(self, module: str, name: str) -> None:
            self._module, self._name = module, name

        def __get__(self, delayq: object, owner: type) -> Any:
            method = getattr(import_module(self._module), self._name)
            setattr(Operations, self._name, method)
            return method.__get__(delayq, owner)

    changing, editing, freeing, health = map(_Later, ("changing", "editing", "freeing", "health"))
    pausing, reading = map(_Later, ("pausing", "reading"))
    selecting, status = map(_Later, ("selecting", "status"))


class Operations:
    """The methods of ``DelayQ`` that read and change scheduled tasks.

    Identify a task by the result of scheduling, by a task that you read, by its id (text or UUID),
    or by its unique key, as ``key``.
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

    # One key.
    holder = freeing.holder
    free = freeing.free

    # Many, or all of them.
    select = selecting.select
    tasks = reading.tasks
    counts = reading.counts
    status = status.status
    health = health.health
    pause = pausing.pause
    resume = pausing.resume
    pauses = pausing.pauses

    @of_one_task
    def result(
        self, task_id: Named | None = None, *, key: str | None = None
    ) -> ScheduledResult[Any] | None:
        """The result of a scheduled task, as the call returned it; or ``None``.

        For a chain it is the last task's result, without its parents.

        Raises:
            UnreadableRecord: this version cannot read its record.
        """
        task = self.get(task_id, key=key)
        return None if task is None else _result_of(self.services, task)

    def due_of(self, request: Context | Task[..., Any]) -> datetime | None:
        """When the task of *request* (``self.request`` in a bound task) was due, if scheduled.

        Raises:
            InvalidOption: it is neither a task's request nor a running task.
        """
        if isinstance(request, Task):
            request = request.request
        if not isinstance(request, Context):
            hint = "; for a result, use .due" if isinstance(request, AsyncResult) else ""
            raise InvalidOption("request", request, f"self.request, in a bound task{hint}")
        due_ms = request.get(DUE_HEADER)
        if due_ms is None:
            return None
        # A released task was sent before it was due, with its due time as the eta.
        return clock.celery_time(request.eta) if request.eta else from_ms(due_ms)

    # Operations that leaves of this package add.

    def history(self, limit: int | None = None) -> list[Event]:
        """The last events: scheduled, handed over, cancelled, replaced, skipped, dead, repaired.

        The setting ``delayq_history`` turns this on, and says how many events to keep.

        Args:
            limit: The maximum number of events.

        Returns:
            Events with ``what``, ``when``, ``id``, ``key``, ``due``, ``task`` and ``queue``, newest
            first. ``task`` is empty if this app has no task of that name; ``queue`` is empty if it
            is neither one of the app's queues, nor paused, nor the queue of a task due next.

        Raises:
            InvalidOption: *limit* is not a whole number, or below 0.
        """
        events: list[Event] = leaf("history").history(self.services, limit=limit)
        return events

    def check(self) -> Iterator[Finding]:
        """The inconsistencies of the store, read slice by slice as you iterate.

        It changes nothing, and ignores operations in progress. It can find a template that counts
        too many records only while no task is scheduled.

        Returns:
            Findings with ``kind``, ``id``, ``sentence`` and ``repair``: the action of
            :meth:`repair` in words, or empty. No findings if the store is consistent.
        """
        found: Iterator[Finding] = leaf("care").check(self.services)
        return found

    def dump(self) -> Iterator[dict[str, Any]]:
        """All tasks and pauses in the store, read as you iterate.

        It changes nothing. Tasks scheduled meanwhile are not included; tasks that leave meanwhile
        may be. So before you move a store, pause everything and stop scheduling.

        Returns:
            Dictionaries for ``json.dumps``: a header of ``kind`` ``dump``; one for each pause and
            task; and a footer of ``kind`` ``end``, with their number. A dump without its footer is
            incomplete.

        Raises:
            StoreDiffers: the store was emptied during the dump.
            kombu.exceptions.OperationalError: Redis cannot be reached.
        """
        lines: Iterator[dict[str, Any]] = leaf("care").dump(self.services)
        return lines

    def repair(self, finding: Finding) -> Repaired:
        """Repair a finding of :meth:`check` if it still holds; change nothing else.

        The repairing step checks the finding again first. To repair a template's count, it reads
        all records.

        Args:
            finding: A finding from this app's store.

        Returns:
            An object whose ``what`` is one of: ``done``; ``back``: the task waits again; ``dead``,
            with the ``reason``; ``lost``: its record was gone, and its place is now removed;
            ``gone``: the problem no longer existed, and nothing was done; ``left``: not repairable,
            only reported. It is false only for ``left``.

        Raises:
            InvalidOption: it is not a finding.
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
        """Load a :meth:`dump`, with its ids, due times, keys, tags, attempts and dead tasks.

        It first restores the pauses. Messages are routed for this app's broker. A task that is
        already here stays as it is, and a task that has left this store since it was scheduled does
        not come back. So you can repeat the same call: at any time while the store is paused, and
        otherwise as long as ``delayq_remember`` says.

        Args:
            lines: The output of :meth:`dump`, or the same as lines of JSON, or an open file of
                them. Consumed in slices of 100.
            skip_existing: Skip tasks whose id or key belongs to another task waiting here.
            paused: First pause everything.
            dry_run: Only count the readable tasks; do not check whether their ids and keys are
                taken.
            progress: Called after each slice with the ``Loaded`` so far.

        Returns:
            How many tasks were ``loaded``, are ``here`` already, had ``left`` or were ``skipped``;
            why others were ``refused``; and which were ``unreadable`` when they were dumped. It is
            true if none was refused or unreadable.

        Raises:
            InvalidDump: it is not a dump, is cut off, or has a damaged line. The lines before that
                are loaded.
            kombu.exceptions.OperationalError: Redis cannot be reached. Loaded tasks stay.
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
    """Return the result of a scheduled task, as the call returned it."""
    app, ids = services.app, [task.id]
    if task.is_canvas:
        with suppress(TypeError, ValueError):  # unreadable arguments
            ids = leaf("canvas").task_ids((task.args,))
    result = app.AsyncResult(task.id)
    if ids == [task.id]:
        result.ignored = task.ignores_result
    else:
        result = app.GroupResult(task.id, [app.AsyncResult(one) for one in ids])
    return scheduled(result, services, clock.to_ms(task.due, services.timezone))
