"""What scheduling returns: Celery's own results, which can also be cancelled and moved."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Union

from celery.app.task import Task
from celery.canvas import Signature
from celery.result import AsyncResult, EagerResult, GroupResult

from ..clock import DelayInput, TimeInput, When, from_ms, one_of
from ..operations import changing, reading
from ..scheduling.calls import schedule_call, schedule_signature
from ..services import Services
from ..store import Outcome, Receipt, State


class Scheduled:
    """What a result of something scheduled can do besides."""

    id: str
    _services: Services
    _due_ms: int

    @property
    def due(self) -> datetime:
        """When it is due, in UTC, as this result last knew.

        It was told when it scheduled or rescheduled; what others changed since,
        ``delayq.get(id).due`` knows.
        """
        return from_ms(self._due_ms)

    def cancel(self, *, revoke: bool = False) -> Outcome:
        """Cancel it; see :meth:`DelayQ.cancel`."""
        return changing.cancel(self._services, self.id, revoke=revoke)

    def reschedule(
        self,
        at: TimeInput | None = None,
        *,
        after: DelayInput | None = None,
        by: DelayInput | None = None,
    ) -> Outcome:
        """Give it another due time; see :meth:`DelayQ.reschedule`."""
        when = one_of(self._services.timezone, at=at, after=after, by=by)
        outcome, due_ms = changing.reschedule(self._services, self.id, when)
        if due_ms is not None:
            self._due_ms = due_ms
        return outcome


class ScheduledResult(Scheduled, AsyncResult):
    """The result of a scheduled task: an ``AsyncResult`` with ``due``, ``cancel``, ``reschedule``.

    Its ``state`` is ``SCHEDULED`` while the task waits.
    """

    @property
    def state(self) -> str:
        """``SCHEDULED`` while held (``DEAD`` if it was set aside), then the backend's word."""
        # The store first: a state in the backend would expire before a far due time.
        held = reading.state(self._services, self.id)
        if held is not None:
            return State.DEAD.value if held is State.DEAD else State.SCHEDULED.value
        state: str = self._get_task_meta()["status"]
        return state

    status = state

    def __del__(self) -> None:
        # Celery up to 5.6 unsubscribes from Redis for each result that is dropped, subscribed or
        # not: a command, and with redis-py from 5.3 on one that can deadlock (celery#10477).
        subscribed = getattr(getattr(self.backend, "result_consumer", None), "subscribed_to", None)
        if subscribed is None or self.backend.get_key_for_task(self.id) in subscribed:
            super().__del__()

    def __reduce__(self) -> Any:
        return AsyncResult, self.__reduce_args__()


class ScheduledGroupResult(Scheduled, GroupResult):
    """The result of a scheduled group: a ``GroupResult`` that can be cancelled and moved."""

    def revoke(self, *args: Any, **options: Any) -> Any:
        """Cancel it while it is held; then what ``GroupResult.revoke`` does: tell the workers."""
        return None if self.cancel() else super().revoke(*args, **options)

    def __reduce__(self) -> Any:
        return GroupResult, self.__reduce_args__()


Result = Union[ScheduledResult, ScheduledGroupResult, EagerResult]


def call_task(
    services: Services, task: Task, when: When, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Result:
    """Schedule one call of a task; its result."""
    return scheduled(services, *schedule_call(services, task.apply_async, when, args, kwargs))


def call_signature(services: Services, signature: Signature, when: When) -> Result:
    """Schedule a signature, or a canvas; its result."""
    return scheduled(services, *schedule_signature(services, signature, when))


def scheduled(services: Services, result: Any, receipt: Receipt | None) -> Result:
    """Celery's *result*, able to be cancelled and rescheduled; as it is, if there is no receipt."""
    if receipt is None:
        eager: EagerResult = result
        return eager
    # The very object that Celery made. A second one beside it would make the Redis result backend
    # unsubscribe twice, as each of them is dropped.
    result.__class__ = ScheduledGroupResult if isinstance(result, GroupResult) else ScheduledResult
    result._services = services
    result._due_ms = receipt.due_ms
    made: ScheduledResult | ScheduledGroupResult = result
    return made
