"""``delay_until`` and ``delay_for`` on tasks and signatures, and ``defer`` on tasks.

:class:`DelayQTask` is a task base class that declares these methods to type checkers:

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

from functools import partial
from types import GenericAlias
from typing import TYPE_CHECKING, Any

from celery.app.task import Task
from celery.canvas import Signature

from .. import clock
from ..clock import DelayInput, TimeInput
from ..errors import InvalidOption
from ..message.body import is_canvas
from ..message.headers import put_offs_in
from ..services import services_of
from ..threads import in_thread
from .apply_async import call, call_signature
from .defer import Defer
from .results import ScheduledResult, take_back

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
        due = clock.at(when, services.timezone)
        return call(services, self.apply_async, due, args, kwargs)

    def delay_for(
        self, delay: DelayInput, /, *args: P.args, **kwargs: P.kwargs
    ) -> ScheduledResult[R_co]:
        """Run this task, with these arguments, in *delay*: a timedelta, or seconds.

        The result's ``due`` has whole milliseconds, by Redis's clock: it is rounded up. With no
        delay, or a negative one, it is the millisecond that Redis's clock is in at the call.

        Raises like ``delay_until``; also for a number above 31 years, which looks like a Unix time.
        """
        return call(services_of(self.app), self.apply_async, clock.after(delay), args, kwargs)

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
        """Put the running task off: ``raise self.defer(after=5)``.

        Arguments and errors are those of :class:`~celery_delayq.Defer`.
        """
        return Defer(after, at)

    @property
    def put_offs(self) -> int:
        """How often the running task has put itself off, under this id."""
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
