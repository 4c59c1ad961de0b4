"""The methods of ``DelayQ`` that read and change scheduled tasks: those of the core."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from typing import Any

from celery.app.task import Context, Task
from celery.result import AsyncResult

from .. import clock
from ..clock import from_ms
from ..errors import InvalidOption
from ..leaves import leaf
from ..message.headers import DUE_HEADER
from ..services import Services
from ..tasks import changing, reading, selection
from ..tasks.scheduled_task import Named, ScheduledTask, of_one_task
from ..threads import awaited
from .results import ScheduledResult, scheduled


class TaskMethods:
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

    # Many, or all of them.
    select = selection.select
    tasks = reading.tasks
    counts = reading.counts

    # For an event loop.
    aget = awaited(reading.get, reads=True)
    acancel = awaited(changing.cancel)
    areschedule = awaited(changing.reschedule)
    arun_now = awaited(changing.run_now)

    @of_one_task
    def result(
        self, task_id: Named | None = None, *, key: str | None = None
    ) -> ScheduledResult[Any] | None:
        """The result of a scheduled task, as the call returned it; or ``None``.

        For a chain it is the last task's result, without its parents.

        Raises:
            UnreadableRecord: its record is damaged, or has the format of a later release.
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
        result = app.GroupResult(task.id, [app.AsyncResult(part_id) for part_id in ids])
    return scheduled(result, services, clock.to_ms(task.due, services.timezone))
