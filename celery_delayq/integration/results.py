"""What scheduling returns: Celery's own results, which can also be cancelled and rescheduled.

ScheduledResult
├── ScheduledTaskResult              an AsyncResult: of a task, a chain, a chord
├── ScheduledGroupResult             a GroupResult
│   └── EagerScheduledGroupResult    of such as have run
└── EagerScheduledResult             an EagerResult: with task_always_eager, the task has run
"""

from __future__ import annotations

from datetime import datetime
from types import GenericAlias
from typing import TYPE_CHECKING, Any

from celery import states
from celery.result import AsyncResult, EagerResult, GroupResult

from ..clock import DelayInput, TimeInput, When, from_ms, one_of
from ..operations import changing, editing
from ..operations.editing import Edit
from ..operations.moves import Direction, conditions
from ..services import HasServices, Services
from ..store import NOW, Outcome
from .async_result import KnowsScheduled, word_of

if TYPE_CHECKING:
    from typing import Generic

    from typing_extensions import TypeVar

    R_co = TypeVar("R_co", covariant=True, default=Any)

    # As Celery's stubs do: what a group returns is typed as an AsyncResult too.
    class _Result(AsyncResult[R_co], Generic[R_co]): ...

else:
    from typing import TypeVar

    R_co = TypeVar("R_co", covariant=True)

    class _Result:
        __class_getitem__ = classmethod(GenericAlias)


_OWN = ("_delayq", "_due_ms", "_existed", "_replicas")


class ScheduledResult(_Result[R_co]):
    """What ``delay_until``, ``delay_for`` and ``schedule`` return; the class to annotate with.

    It is one of Celery's results as well: an ``AsyncResult``, of a group a ``GroupResult``.
    """

    id: str
    _delayq: HasServices
    _due_ms: int
    _existed: bool
    _replicas: int | None

    _behind: type  # Celery's, as which it is pickled
    _has_run = False  # with `task_always_eager` it ran in the call, and never was in Redis

    @property
    def due(self) -> datetime:
        """When it is due, in UTC, as this result last knew.

        It was told when it scheduled or rescheduled; what others changed since,
        ``delayq.get(id).due`` knows.
        """
        return from_ms(self._due_ms)

    @property
    def existed(self) -> bool:
        """Whether this is the result of a task that was scheduled before, and was kept.

        ``delayq_conflict`` said so; the call's own task was not scheduled.
        """
        return self._existed

    @property
    def replicas(self) -> int | None:
        """How many replicas of the store's Redis had it when the call returned.

        ``None`` where the setting ``delayq_wait_replicas`` did not say to wait for them, and of a
        result that was made anew. It is scheduled, whatever this is.
        """
        return self._replicas

    @property
    def state(self) -> str:
        """``SCHEDULED`` while it waits (``PAUSED``, ``DEAD``), then the backend's word.

        The word for a group is its tasks': ``FAILURE`` or ``REVOKED`` as soon as one of them is,
        ``SUCCESS`` when all are, and ``PENDING`` until then.
        """
        # The store first: a state in the backend would expire before a far due time.
        waits = None if self._has_run else self._delayq.services.entries.state(self.id)
        return self._backend_state() if waits is None else word_of(waits)

    status = state

    def cancel(self, *, revoke: bool = False) -> Outcome:
        """Cancel it; see :meth:`DelayQ.cancel`."""
        if self._has_run:
            return Outcome.HANDED_OVER
        return changing.cancel(self._delayq, self.id, revoke=revoke)

    def reschedule(
        self,
        at: TimeInput | None = None,
        *,
        after: DelayInput | None = None,
        by: DelayInput | None = None,
        only: Direction | None = None,
        if_due: TimeInput | None = None,
    ) -> Outcome:
        """Give it another due time; see :meth:`DelayQ.reschedule`."""
        services = self._delayq.services
        when = one_of(services.timezone, at=at, after=after, by=by)
        return self._move(when, **conditions(services.timezone, only, if_due))

    def run_now(self) -> Outcome:
        """Deliver it at once, even if it is paused; see :meth:`DelayQ.run_now`."""
        return self._move(NOW, mode="now")

    def _move(self, when: When, **how: Any) -> Outcome:
        if self._has_run:
            return Outcome.HANDED_OVER
        outcome, due_ms = changing.move(self._delayq.services, self.id, when, **how)
        if due_ms is not None:
            self._due_ms = due_ms
        return outcome

    def edit(self, *, if_revision: int | None = None, **changes: Any) -> Outcome:
        """Give it other arguments, another priority or expiry; see :meth:`DelayQ.edit`."""
        if self._has_run:
            Edit(**changes)  # a wrong value is refused all the same
            return Outcome.HANDED_OVER
        return editing.edit(self._delayq, self.id, if_revision=if_revision, **changes)

    def _backend_state(self) -> str:
        word: str = super().state
        return word

    def __reduce__(self) -> Any:
        return self._behind, super().__reduce__()[1]


class ScheduledTaskResult(ScheduledResult[R_co], AsyncResult):
    """The result of a scheduled task, chain or chord."""

    _behind = AsyncResult

    def __copy__(self) -> Any:
        return _copied(super().__copy__(), self)

    def __del__(self) -> None:
        # Celery up to 5.6 unsubscribes from Redis for each result that is dropped, subscribed or
        # not: a command, and with redis-py from 5.3 on one that can deadlock (celery#10477).
        subscribed = getattr(getattr(self.backend, "result_consumer", None), "subscribed_to", None)
        if subscribed is None or self.backend.get_key_for_task(self.id) in subscribed:
            super().__del__()


class ScheduledGroupResult(ScheduledResult[Any], GroupResult):
    """The result of a scheduled group: a ``GroupResult`` that can be cancelled and rescheduled."""

    _behind = GroupResult

    def revoke(self, *args: Any, **options: Any) -> Any:
        """Cancel it while it waits; then what ``GroupResult.revoke`` does: tell the workers."""
        return None if self.cancel() else super().revoke(*args, **options)

    def _backend_state(self) -> str:
        return _state_of_all(self.results)


class EagerScheduledResult(ScheduledResult[R_co], EagerResult):
    """The result of a task, chain or chord that ran in the call."""

    _behind = EagerResult
    _has_run = True

    def __copy__(self) -> Any:
        return _copied(super().__copy__(), self)


class EagerScheduledGroupResult(ScheduledGroupResult):
    """The result of a group that ran in the call."""

    _has_run = True


_WAIT = ScheduledTaskResult, ScheduledGroupResult
_HAVE_RUN = EagerScheduledResult, EagerScheduledGroupResult


def scheduled(
    result: Any,
    services: Services,
    due_ms: int,
    *,
    existed: bool = False,
    replicas: int | None = None,
    has_run: bool = False,
) -> ScheduledResult[Any]:
    """*result*, able to be cancelled and rescheduled.

    Args:
        result: Celery's.
        services: Of its app.
        due_ms: When it is due.
        existed: Whether it is of a task that was there.
        replicas: How many have it, if that is known.
        has_run: Whether it should have waited, and ran at once.
    """
    one, group = _HAVE_RUN if has_run else _WAIT
    # The very object that Celery made. A second one beside it would make the Redis result backend
    # unsubscribe twice, as each of them is dropped.
    result.__class__ = group if isinstance(result, GroupResult) else one
    result._delayq = services.app.delayq
    result._due_ms = due_ms
    result._existed = existed
    result._replicas = replicas
    made: ScheduledResult[Any] = result
    return made


def _state_of_all(results: list[Any]) -> str:
    found = {_state_of(result) for result in results}
    for ended in (states.FAILURE, states.REVOKED):
        if ended in found:
            return str(ended)
    return str(states.PENDING if found - {states.SUCCESS} else states.SUCCESS)


def _state_of(result: Any) -> str:
    if isinstance(result, GroupResult):
        return _state_of_all(result.results)
    word: str = result.backend_state if isinstance(result, KnowsScheduled) else result.state
    return word


def _copied(result: Any, copied: ScheduledResult[Any]) -> ScheduledResult[Any]:
    """*result*, Celery's copy of one of these."""
    own = {name: vars(copied)[name] for name in _OWN}
    result.__class__ = type(copied)
    vars(result).update(own)
    made: ScheduledResult[Any] = result
    return made
