"""Scheduling of single calls: Celery's ``apply_async`` runs, and its message is scheduled.

``Defer`` is the exception with which a running task defers itself. Tasks and signatures get
``delay_until`` and ``delay_for``, and tasks ``defer``; :class:`DelayQTask` is a task base class
that declares these methods to type checkers:

    app = Celery("shop", task_cls=DelayQTask)     or task_cls="celery_delayq:DelayQTask", untyped
    delayq = DelayQ(app)                          app.delayq is the same object, untyped

    remind.delay_for(60, 42)                      typed; class Bill(DelayQTask[[int], str]) also
                                                  declares its arguments and return type
    delayq.schedule(remind.s(42), after=60)       typed; remind.s(42).delay_for(60) is not

Types require ``celery-types``, as Celery has none of its own.

Celery has no extension point that covers every task class and every signature: a custom ``base=``
need not derive from ``app.Task``, and the class of signatures is fixed. So :class:`DelayQ` adds
these methods to ``Task`` and ``Signature``, and replaces no existing ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timezone, tzinfo
from functools import partial
from types import GenericAlias, MappingProxyType
from typing import TYPE_CHECKING, Any

from celery.app.task import Task
from celery.canvas import Signature
from celery.exceptions import TaskPredicate
from celery.result import AsyncResult, EagerResult, GroupResult

from .. import clock
from ..clock import DelayInput, TimeInput, When, one_of
from ..errors import InvalidOption
from ..leaves import leaf
from ..message.body import is_canvas
from ..message.headers import put_offs_in
from ..scheduling.intercept import Request
from ..scheduling.options import FINISHED, KEY, UNTIL, entry_options_of, options_of_entry
from ..scheduling.writing import new_id
from ..services import Services, services_of
from ..store import Receipt
from ..threads import in_thread
from .results import ScheduledResult, scheduled, take_back

if TYPE_CHECKING:
    from typing import Generic

    from typing_extensions import ParamSpec, TypeVar

    P = ParamSpec("P", default=...)
    R_co = TypeVar("R_co", covariant=True, default=Any)

    class _Task(Task[P, R_co], Generic[P, R_co]): ...

else:
    from typing import ParamSpec, TypeVar

    P = ParamSpec("P")
    R_co = TypeVar("R_co", covariant=True)

    class _Task(Task):
        # Celery 5.4's Task cannot be subscripted; later versions do it this way.
        __class_getitem__ = classmethod(GenericAlias)


class Defer(TaskPredicate):
    """Puts off the task that raises it: the task runs again, with its id, at another time.

    This does not count as a failure or a retry. ``self.defer(after=5)`` creates one as well.

    Args:
        after: A timedelta, or seconds from now.
        at: A time, instead; see ``delay_until``.

    Raises:
        InvalidOption: neither or both are given.
        InvalidDueTime: the value is not a time, or past 2255-06-05.
    """

    __module__ = "celery_delayq"  # as pickles name it

    def __init__(self, after: DelayInput | None = None, at: TimeInput | None = None) -> None:
        super().__init__(after, at)
        if (after is None) == (at is None):
            raise InvalidOption("time", self.args, "exactly one of after and at")
        self.when(timezone.utc)

    def when(self, zone: tzinfo) -> When:
        """Return the time of the next run; a naive one is read in *zone*."""
        after, at = self.args
        return one_of(zone, after=after, at=at)

    def __str__(self) -> str:
        return (
            "Defer was not caught; a worker catches it around a task's own code if its app has a "
            "DelayQ"
        )


def schedule_call(
    services: Services,
    request: Request,
    apply_async: Callable[..., Any],
    /,
    *args: Any,
    **options: Any,
) -> tuple[Any, Receipt | None]:
    """Call ``apply_async(*args, **options)`` so that its message is scheduled as *request* says.

    Args:
        services: The services of the sending app.
        request: The due time, and what else there is to know.
        apply_async: The method.
        *args: Its arguments.
        **options: Its options, of Celery and of :mod:`celery_delayq.core.scheduling.options`.

    Returns:
        The result of ``apply_async``, and the store's receipt. If an earlier task was kept, its
        result and receipt. With ``task_always_eager``, the task has run and there is no receipt;
        nor is there one if the message was left to Celery. If a custom ``apply_async`` sends
        nothing and returns an earlier call's result: that result, and a receipt if its task waits.

    Raises:
        DelayQError: the task was not scheduled.
        NotScheduled: the task was sent at once, because a custom ``apply_async`` drops options.
    """
    result = request.sent_by(apply_async, *args, **options)
    receipt = request.answer.receipt
    if receipt is not None:
        return _kept(services, result, receipt) if receipt.existed else result, receipt
    is_eager = isinstance(result, EagerResult) or services.app.conf.task_always_eager
    if is_eager or request.answer.left:
        return result, None
    request.refuse_sent(result)
    return result, _receipt_of(services, result)


def _kept(services: Services, result: Any, receipt: Receipt) -> AsyncResult:
    """Return the kept task's result, in place of the one that Celery made for the call."""
    kept: AsyncResult = services.app.AsyncResult(receipt.task_id)
    running = services.app.current_worker_task
    children = running.request.children if running is not None else None
    # The running task's result lists its children. A task that never runs must not be among them:
    # a process that waits for it would wait forever.
    if children and children[-1] is result:
        children[-1] = kept
    return kept


def _receipt_of(services: Services, result: Any) -> Receipt | None:
    entry = services.entries.find(result.id) if isinstance(result, AsyncResult) else None
    return Receipt(entry.task_id, entry.due_ms, existed=True) if entry else None


def call(
    services: Services,
    request: Request,
    apply_async: Callable[..., Any],
    /,
    *args: Any,
    **options: Any,
) -> ScheduledResult[Any]:
    """Schedule one call with :func:`schedule_call`; return a result that you can cancel."""
    result, receipt = schedule_call(services, request, apply_async, *args, **options)
    return result_of(services, request, result, receipt)


def call_signature(
    services: Services,
    signature: Signature,
    when: When,
    own: Mapping[str, Any] = MappingProxyType({}),
) -> ScheduledResult[Any]:
    """Like :func:`call`, for a signature; a canvas becomes one entry, launched when it is due.

    Args:
        services: The services of its app.
        signature: The signature.
        when: The due time.
        own: Options of the entry, by the names that a call uses; they go before the signature's.
    """
    in_signature = options_of_entry(signature.options)
    of_entry = {**in_signature, **own}
    is_eager = services.app.conf.task_always_eager
    if is_eager:
        entry_options_of(of_entry)  # nothing else validates them
    if is_canvas(signature) and of_entry.get(UNTIL) == FINISHED:
        raise InvalidOption(UNTIL, FINISHED, "a plain task: the parts of a canvas end one by one")
    if is_canvas(signature) and not is_eager:
        held: ScheduledResult[Any] = leaf("canvas").schedule(
            services, signature, when, in_signature, own
        )
        return held
    # A frozen signature already has an id, which a caller may know.
    frozen = bool(signature.options.get("task_id"))
    options, key = dict(own), of_entry.get(KEY)
    if key is not None and not (frozen or is_eager) and services.settings.shards > 1:
        options["task_id"] = new_id(services, entry_options_of({KEY: key}).extras.key)
    request = Request(when, given_out=frozen, frozen=frozen)
    return call(services, request, signature.apply_async, **options)


def result_of(
    services: Services, request: Request, result: Any, receipt: Receipt | None
) -> ScheduledResult[Any]:
    """Make the result of ``apply_async`` one that you can cancel and reschedule."""
    if receipt is not None:
        return scheduled(
            result, services, receipt.due_ms, existed=receipt.existed, replicas=receipt.replicas
        )
    if not isinstance(result, (EagerResult, GroupResult)) or result.id is None:
        # From a custom apply_async: the result of an earlier call, or of a rejected one.
        made: ScheduledResult[Any] = result
        return made
    due_ms = clock.to_ms(request.expected_due(), services.timezone)
    return scheduled(result, services, due_ms, has_run=True)


class DelayQTask(_Task[P, R_co]):
    """Celery's ``Task`` with typed ``delay_until``, ``delay_for`` and ``defer``.

    Its type parameters are the task's arguments and return type; you may omit them. If Celery's
    Django support is active, :class:`DelayQ` also gives the tasks its methods.
    """

    def delay_until(
        self, when: TimeInput, /, *args: P.args, **kwargs: P.kwargs
    ) -> ScheduledResult[R_co]:
        """Run this task, with these arguments, at *when*.

        *when* is an aware datetime; a naive datetime, read in the app's time zone; Unix time in
        seconds; or ISO 8601 text. A past time means at once. The other arguments are the task's.
        The result's ``due`` has whole milliseconds: a time still to come is rounded up.

        Raises:
            InvalidDueTime: *when* is not a time, or after 2255-06-05; or a number before 1980,
                which looks like a delay.
            TypeError: the arguments do not fit the task.
            kombu.exceptions.OperationalError: Redis cannot be reached.
        """
        services = services_of(self.app)
        request = Request(clock.at(when, services.timezone), given_out=False)
        return call(services, request, self.apply_async, args, kwargs)

    def delay_for(
        self, delay: DelayInput, /, *args: P.args, **kwargs: P.kwargs
    ) -> ScheduledResult[R_co]:
        """Run this task, with these arguments, in *delay*: a timedelta, or seconds.

        The result's ``due`` has whole milliseconds, by Redis's clock: it is rounded up. With no
        delay, or a negative one, it is the millisecond that Redis's clock is in at the call.

        Raises like ``delay_until``; also for a number above 31 years, which looks like a Unix time.
        """
        request = Request(clock.after(delay), given_out=False)
        return call(services_of(self.app), request, self.apply_async, args, kwargs)

    async def adelay_until(
        self, when: TimeInput, /, *args: P.args, **kwargs: P.kwargs
    ) -> ScheduledResult[R_co]:
        """``delay_until`` for an event loop; see :meth:`DelayQ.aschedule`."""
        return await in_thread(partial(self.delay_until, when, *args, **kwargs), take_back)

    async def adelay_for(
        self, delay: DelayInput, /, *args: P.args, **kwargs: P.kwargs
    ) -> ScheduledResult[R_co]:
        """``delay_for`` for an event loop; see :meth:`DelayQ.aschedule`."""
        return await in_thread(partial(self.delay_for, delay, *args, **kwargs), take_back)

    def defer(self, after: DelayInput | None = None, at: TimeInput | None = None) -> Defer:
        """Defer the running task: ``raise self.defer(after=5)``.

        Arguments and errors are those of :class:`~celery_delayq.Defer`.
        """
        return Defer(after, at)

    @property
    def put_offs(self) -> int:
        """How often the running task has deferred itself, under this id."""
        return put_offs_in(self.request)


def _signature_delay_until(
    sig: Signature, when: TimeInput, /, *args: Any, **kwargs: Any
) -> ScheduledResult:
    """Run this signature at *when*; see the method of the same name on tasks.

    Extra arguments are added like ``delay`` adds them; a canvas takes none.
    """
    services = services_of(sig.app)
    return call_signature(services, _with(sig, args, kwargs), clock.at(when, services.timezone))


def _signature_delay_for(
    sig: Signature, delay: DelayInput, /, *args: Any, **kwargs: Any
) -> ScheduledResult:
    """Run this signature in *delay*; like ``delay_until``."""
    return call_signature(services_of(sig.app), _with(sig, args, kwargs), clock.after(delay))


def _with(sig: Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Signature:
    if not args and not kwargs:
        return sig
    if is_canvas(sig):
        raise InvalidOption("arguments", (args, kwargs), "none: those of a canvas are its tasks'")
    added: Signature = sig.clone(args, kwargs)
    return added


def install() -> None:
    """Add the methods; a second call has no effect."""
    for target, name, method in (
        (Task, "delay_until", DelayQTask.delay_until),
        (Task, "delay_for", DelayQTask.delay_for),
        (Task, "adelay_until", DelayQTask.adelay_until),
        (Task, "adelay_for", DelayQTask.adelay_for),
        (Task, "defer", DelayQTask.defer),
        (Task, "put_offs", DelayQTask.put_offs),
        (Signature, "delay_until", _signature_delay_until),
        (Signature, "delay_for", _signature_delay_for),
        (Signature, "adelay_until", DelayQTask.adelay_until),
        (Signature, "adelay_for", DelayQTask.adelay_for),
    ):
        if name not in vars(target):
            setattr(target, name, method)
