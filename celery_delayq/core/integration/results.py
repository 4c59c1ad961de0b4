"""Results of scheduling: Celery's own results, which you can also cancel and reschedule.

ScheduledResult
├── ScheduledTaskResult              an AsyncResult: of a task, a chain, a chord
├── ScheduledGroupResult             a GroupResult
│   └── EagerScheduledGroupResult    with task_always_eager, the group has run
└── EagerScheduledResult             an EagerResult: with task_always_eager, the task has run

``app.AsyncResult`` is Celery's result, which also reports ``SCHEDULED``, ``PAUSED`` and ``DEAD``:
if the backend's state is ``PENDING``, the store is asked. If it is down, or does not have the task,
the backend's state holds. Without a backend, it reads the store first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from copy import copy
from datetime import datetime
from types import GenericAlias
from typing import TYPE_CHECKING, Any

from celery import Celery, current_app, states
from celery.backends.base import DisabledBackend
from celery.result import AsyncResult, EagerResult, GroupResult

from ..clock import DelayInput, TimeInput, from_ms, to_ms
from ..errors import DelayQError
from ..leaves import leaf, operation
from ..scheduling.intercept import TextIds
from ..services import HasServices, Services, find
from ..store import Outcome, State
from ..store.changes import Move
from ..tasks import changing
from ..tasks.changing import Direction
from ..tasks.reading import get
from ..tasks.scheduled_task import (
    Named,
    ScheduledTask,
    checked_revision,
    of_one_task,
    target_of,
)
from ..text import logger_of

if TYPE_CHECKING:
    from typing import Generic

    from typing_extensions import TypeVar, Unpack

    from ..tasks.changing import ChangesOfOne

    R_co = TypeVar("R_co", covariant=True, default=Any)

    # Like Celery's stubs, type the result of a group as an AsyncResult too.
    class _Result(AsyncResult[R_co], Generic[R_co]): ...

else:
    from typing import TypeVar

    R_co = TypeVar("R_co", covariant=True)

    class _Result:
        __class_getitem__ = classmethod(GenericAlias)


logger = logger_of(__name__)

_TOO_LATE = "task %s: its coroutine was cancelled, and it was too late to cancel the task: %s"


class ScheduledResult(_Result[R_co]):
    """The result of ``delay_until``, ``delay_for`` and ``schedule``; use it in annotations.

    It is also one of Celery's results: an ``AsyncResult``, or a ``GroupResult`` for a group.
    """

    __module__ = "celery_delayq"  # as pickles name it

    id: str
    _delayq: HasServices
    _due_ms: int
    _existed: bool
    _replicas: int | None

    _behind: type  # Celery's class
    _has_run = False  # with `task_always_eager` it ran during the call and was never in Redis

    @property
    def due(self) -> datetime:
        """The due time in UTC, as this result last set it, in whole milliseconds.

        A time still to come is rounded up. A task that is due at once is due in the millisecond
        that Redis's clock is in, which may have begun before the call.
        For changes by others, read ``delayq.get(id).due``.
        """
        return from_ms(self._due_ms)

    @property
    def existed(self) -> bool:
        """Whether ``delayq_conflict`` kept an earlier task, and this is its result.

        The call's own task was not scheduled.
        """
        return self._existed

    @property
    def replicas(self) -> int | None:
        """How many replicas of the store's Redis had the task when the call returned.

        ``None`` if the setting ``delayq_wait_replicas`` is off, or this result was rebuilt later.
        The task is scheduled in any case.
        """
        return self._replicas

    @property
    def state(self) -> str:
        """``SCHEDULED`` (or ``PAUSED``, ``DEAD``) while in the store, then the backend's state.

        A group's state comes from its tasks: ``FAILURE`` or ``REVOKED`` as soon as one of them has
        that state, ``SUCCESS`` when all have it, and ``PENDING`` until then.
        """
        # The store first: a backend's state could expire before a distant due time.
        waits = None if self._has_run else self._delayq.services.entries.state(self.id)
        return self._backend_state() if waits is None else word_of(waits)

    status = state

    def cancel(self, *, revoke: bool = False, if_revision: int | None = None) -> Outcome:
        """Cancel it; see :meth:`DelayQ.cancel`."""
        if self._has_run:
            return Outcome.HANDED_OVER
        return changing.cancel(self._delayq, self.id, revoke=revoke, if_revision=if_revision)

    def reschedule(
        self,
        at: TimeInput | None = None,
        *,
        after: DelayInput | None = None,
        by: DelayInput | None = None,
        only: Direction | None = None,
        if_due: TimeInput | None = None,
        if_revision: int | None = None,
    ) -> Outcome:
        """Give it another due time; see :meth:`DelayQ.reschedule`."""
        times = {"at": at, "after": after, "by": by}
        zone = self._delayq.services.timezone
        return self._move(changing.move_of(zone, only, if_due, if_revision, **times))

    def run_now(self, *, if_revision: int | None = None) -> Outcome:
        """Deliver it at once, even if it is paused; see :meth:`DelayQ.run_now`."""
        return self._move(Move(mode="now", revision=checked_revision(if_revision)))

    def _move(self, what: Move) -> Outcome:
        if self._has_run:
            return Outcome.HANDED_OVER
        outcome, change = changing.move(self._delayq.services, target_of(self.id), what)
        if change.due_ms is not None:
            self._due_ms = change.due_ms
        return outcome

    def edit(
        self,
        *,
        if_revision: int | None = None,
        **changes: Unpack[ChangesOfOne],
    ) -> Outcome:
        """Change its arguments, priority, expiry, queue, key or tags; see :meth:`DelayQ.edit`."""
        edits = operation("edits")
        edits.Edit(**changes)  # refuses an invalid one, also of a task that has run
        if self._has_run:
            return Outcome.HANDED_OVER
        outcome: Outcome = edits.edit(self._delayq, self.id, if_revision=if_revision, **changes)
        return outcome

    def _backend_state(self) -> str:
        word: str = super().state
        return word

    @classmethod
    def restored(
        cls, kind: Callable[..., Any], args: tuple[Any, ...], facts: Mapping[str, Any]
    ) -> Any:
        """Return the result that a pickle describes.

        Like Celery's own, it belongs to the app that is current where it is read. If that app has
        no ``DelayQ``, it is Celery's result only.

        Args:
            kind: Celery's class.
            args: Its arguments.
            facts: The arguments of :func:`scheduled` beyond the app's services.
        """
        services = find(current_app)
        result = kind(*args)
        return result if services is None else scheduled(result, services, **facts)

    def __reduce__(self) -> Any:
        return ScheduledResult.restored, (self._behind, super().__reduce__()[1], self._facts)

    def __copy__(self) -> Any:
        result = self._behind(*super().__reduce__()[1])
        result.app, result.parent = self.app, self.parent
        return scheduled(result, self._delayq.services, **self._facts)

    def __deepcopy__(self, _: object) -> Any:
        # A copy of the backend would have connections of its own, and the current app.
        return copy(self)

    @property
    def _facts(self) -> dict[str, Any]:
        return {
            "due_ms": self._due_ms,
            "existed": self._existed,
            "replicas": self._replicas,
            "has_run": self._has_run,
        }


class ScheduledTaskResult(ScheduledResult[R_co], AsyncResult):
    """The result of a scheduled task, chain or chord."""

    _behind = AsyncResult

    def __del__(self) -> None:
        # Celery up to 5.6 unsubscribes from Redis for each dropped result, subscribed or not. That
        # costs a command, which can deadlock with redis-py 5.3 and later (celery#10477).
        subscribed = getattr(getattr(self.backend, "result_consumer", None), "subscribed_to", None)
        if subscribed is None or self.backend.get_key_for_task(self.id) in subscribed:
            super().__del__()


class ScheduledGroupResult(ScheduledResult[Any], GroupResult):
    """The result of a scheduled group: a ``GroupResult`` that can be cancelled and rescheduled."""

    _behind = GroupResult

    def revoke(self, *args: Any, **options: Any) -> Any:
        """Cancel the group while it waits; once delivered, revoke it like ``GroupResult``."""
        return None if self.cancel() else super().revoke(*args, **options)

    def _backend_state(self) -> str:
        return _state_of_all(self.results)


class EagerScheduledResult(ScheduledResult[R_co], EagerResult):
    """The result of a task, chain or chord that ran during the call."""

    _behind = EagerResult
    _has_run = True


class EagerScheduledGroupResult(ScheduledGroupResult):
    """The result of a group that ran during the call."""

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
    """Turn *result* into one that you can cancel and reschedule.

    Args:
        result: Celery's result.
        services: The app's.
        due_ms: The due time.
        existed: Whether it belongs to a task that existed before.
        replicas: How many replicas have the task, if known.
        has_run: Whether the task ran at once instead of waiting.
    """
    one, group = _HAVE_RUN if has_run else _WAIT
    # Change Celery's object itself: with a second object, the Redis result backend would
    # unsubscribe twice, once for each dropped object.
    result.__class__ = group if isinstance(result, GroupResult) else one
    result._delayq = services.app.delayq
    result._due_ms = due_ms
    result._existed = existed
    result._replicas = replicas
    made: ScheduledResult[Any] = result
    return made


@of_one_task
def result(
    delayq: HasServices, task_id: Named | None = None, *, key: str | None = None
) -> ScheduledResult[Any] | None:
    """The result of a scheduled task, as the call returned it; or ``None``.

    For a chain it is the last task's result, without its parents.

    Raises:
        UnreadableRecord: its record is damaged, or has the format of a later release.
    """
    task = get(delayq, task_id, key=key)
    return None if task is None else _result_of(delayq.services, task)


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
    return scheduled(result, services, to_ms(task.due, services.timezone))


def take_back(result: object) -> None:
    """Cancel the task of a call that is not wanted any more; an earlier task that it kept stays."""
    if isinstance(result, ScheduledResult) and not result.existed:
        outcome = result.cancel()
        if outcome not in (Outcome.DONE, Outcome.NOT_FOUND):
            logger.warning(_TOO_LATE, result.id, outcome.value)


def word_of(state: State) -> str:
    """Return a state as results show it; a task in flight is still scheduled."""
    return State.SCHEDULED.value if state is State.IN_FLIGHT else state.value


class _KnowsScheduled(TextIds):
    """A mixin in front of the app's original result class."""

    id: str
    app: Celery
    backend: Any
    _behind: type

    @property
    def state(self) -> str:
        """The backend's state; ``SCHEDULED``, ``PAUSED`` or ``DEAD`` while in the store."""
        if isinstance(self.backend, DisabledBackend):
            return self._held() or self.backend_state
        word = self.backend_state
        return word if word != states.PENDING else self._held() or word

    status = state

    @property
    def backend_state(self) -> str:
        """The state as Celery's own result reports it."""
        word: str = super().state  # type: ignore[misc]
        return word

    def _held(self) -> str:
        services = find(self.app)
        try:
            state = services and services.entries.state(target_of(self.id))
        except DelayQError as error:
            logger.debug("task %s: its state cannot be read from the store: %s", self.id, error)
            return ""
        return word_of(state) if state else ""

    def __reduce__(self) -> Any:
        made: Any = super().__reduce__()
        # This class cannot be imported. Unpickle as the original class; an app with a DelayQ puts
        # this one in front of it.
        return (self._behind, *made[1:]) if made[0] is type(self) else made


class _Answers(_KnowsScheduled):
    """Answers that need only the backend, as programs poll many results this way."""

    def ready(self) -> bool:
        """Whether the task has run."""
        return self.backend_state in self.backend.READY_STATES

    def successful(self) -> bool:
        """Whether the task has run and succeeded."""
        return bool(self.backend_state == states.SUCCESS)

    def failed(self) -> bool:
        """Whether the task has run and failed."""
        return bool(self.backend_state == states.FAILURE)


def let_results_know(app: Celery) -> None:
    """Make the results of *app* report tasks in the store."""
    behind = app.AsyncResult
    # A subclass of Celery may use a function instead of a class.
    if not isinstance(behind, type) or not issubclass(behind, AsyncResult):
        return
    own = ("ready", "successful", "failed")
    is_plain = all(getattr(behind, name) is getattr(AsyncResult, name) for name in own)
    names = {"__module__": behind.__module__, "__doc__": behind.__doc__, "_behind": behind}
    kind = _Answers if is_plain else _KnowsScheduled
    app.AsyncResult = type(behind.__name__, (kind, behind), names)


def _state_of_all(results: list[Any]) -> str:
    found = {_state_of(result) for result in results}
    for ended in (states.FAILURE, states.REVOKED):
        if ended in found:
            return str(ended)
    return str(states.PENDING if found - {states.SUCCESS} else states.SUCCESS)


def _state_of(result: Any) -> str:
    if isinstance(result, GroupResult):
        return _state_of_all(result.results)
    word: str = result.backend_state if isinstance(result, _KnowsScheduled) else result.state
    return word
