"""Lets a running task defer itself: it runs again, with the same id, at a later time.

    raise self.defer(after=5) --> caught around its code --> its next run is an entry --> Ignore
                                      |                        | the store does not take it
                                      +-- eager: at once       +--> a message with an eta

It is caught innermost, before ``autoretry_for`` or a tracer could take it for a failure. On
``Ignore``, Celery acknowledges the message and notifies neither callbacks, chord nor result
backend. The entry exists by then and names the message, so if the broker delivers the message
again, the worker drops it. An uncaught ``Defer`` is an error like any other: the task fails, and is
not lost.

``set_up`` and ``configured`` let tasks of each process put themselves off; ``in_worker`` also those
whose class has an ``on_bound`` of its own. ``NotingStep`` notes the serializer of each message.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from typing import Any

import celery.app.task
from celery import Celery, bootsteps, states
from celery.app.task import Context, Task
from celery.exceptions import Ignore

from ..core.clock import from_ms
from ..core.errors import AlreadyTaken, PutOffTooOften
from ..core.integration.apply_async import Defer, schedule_call
from ..core.libraries import Feature, works
from ..core.message.body import is_serializer, serializer_of
from ..core.message.headers import PUT_OFFS_HEADER, SERIALIZER_HEADER, identity_of, put_offs_in
from ..core.scheduling.intercept import Request
from ..core.services import Services, find
from ..core.text import logger_of
from .consumer import look_first

__all__ = ["Defer", "configured", "in_worker", "set_up"]

logger = logger_of(__name__)

MOST_EAGER = 100  # times that an eager task may defer itself, as no time passes

_WRAPS = "delayq_puts_off"

# In Celery 5.7 a call can ask for the result of a task that ignores results; in 5.4 it cannot.
_ignores_result: Callable[[Task, Context], bool] = getattr(
    celery.app.task,
    "get_actual_ignore_result",
    lambda task, request: request.ignore_result or task.ignore_result,
)


def set_up(_app: Celery) -> None:
    """Let tasks that are created later put themselves off; a second call changes nothing."""
    if not works(Feature.PUTTING_OFF):
        return
    plain = Task.on_bound.__func__
    if hasattr(plain, _WRAPS):
        return

    @wraps(plain)
    def on_bound(cls: type[Task], app: Any) -> None:
        plain(cls, app)
        if find(app) is not None:
            for task in _tasks_of(cls, app):
                _let_put_off(task)

    setattr(on_bound, _WRAPS, True)
    Task.on_bound = classmethod(on_bound)


def _tasks_of(cls: type[Task], app: Any) -> list[Task]:
    named = app._tasks.get(cls.name)
    if type(named) is cls:
        return [named]
    # The class has no name if Celery named only the task, or if it is a base class and no task.
    return [task for task in app._tasks.values() if type(task) is cls]


def configured(app: Celery) -> None:
    """Let existing tasks put themselves off; a second call changes nothing."""
    for task in [*app._tasks.values()]:
        _let_put_off(task)


def in_worker(app: Celery) -> None:
    """Let all tasks do so, including those whose class has an ``on_bound`` of its own."""
    for task in app.tasks.values():
        _let_put_off(task)


def _let_put_off(task: Task) -> None:
    """Catch ``Defer`` around all of a task's own code; a second call changes nothing."""
    if not works(Feature.PUTTING_OFF):
        return
    # Celery wraps `run` for `autoretry_for`, and keeps the task's own as `_orig_run`.
    for name in ("_orig_run" if hasattr(task, "_orig_run") else "run", "before_start"):
        code = getattr(task, name)
        if not hasattr(code, _WRAPS):
            setattr(task, name, _catching(code, lambda *_: task))
    # Python looks up `__call__` on the class.
    cls = type(task)
    if cls.__call__ is not Task.__call__ and not hasattr(cls.__call__, _WRAPS):
        cls.__call__ = _catching(cls.__call__, lambda task, *_: task)


def _catching(code: Callable[..., Any], task_of: Callable[..., Task]) -> Callable[..., Any]:
    @wraps(code)
    def run(*args: Any, **kwargs: Any) -> Any:
        for _ in range(MOST_EAGER):
            try:
                return code(*args, **kwargs)
            except Defer as defer:
                task = task_of(*args)
                request, services = task.request, find(task.app)
                if request.called_directly or services is None:
                    raise
                if not request.is_eager:
                    _put_off(services, task, request, defer)
                    raise Ignore("put off") from None
                request.update({PUT_OFFS_HEADER: put_offs_in(request) + 1})
        raise PutOffTooOften(task.name, MOST_EAGER)

    setattr(run, _WRAPS, True)
    return run


def _put_off(services: Services, task: Task, request: Context, defer: Defer) -> None:
    """Schedule the next run of a running task.

    Raises:
        DelayQError: it cannot be scheduled.
    """
    when = defer.when(services.timezone)
    own = identity_of(request.id, request, request.properties or {})
    own = own if services.has_store else None
    delivery = services.copies.delivery(own, again=True) if own else None
    _take_back_state(task, request)
    signature = task.signature_from_request(request, **_also_kept(request))
    headers = signature.options["headers"] or {}
    signature.options["headers"] = {**headers, PUT_OFFS_HEADER: put_offs_in(request) + 1}
    serializer = request.get(SERIALIZER_HEADER)
    if is_serializer(serializer):  # of the message, or any program's header
        signature.options["serializer"] = serializer
    again = Request(when, delivery, frozen=True, captured=True)
    try:
        _, receipt = schedule_call(services, again, signature.apply_async)
    except AlreadyTaken:
        logger.info("task %s: was put off at an earlier delivery of its message", request.id)
    else:
        due = from_ms(receipt.due_ms) if receipt else "the eta of its message"
        logger.info("task %s: put off, until %s", request.id, due)


def _also_kept(request: Context) -> dict[str, Any]:
    """Options of a call that Celery's own retry does not keep, or not in every version."""
    names = ("argsrepr", "kwargsrepr", "ignore_result")
    return {name: vars(request)[name] for name in names if name in vars(request)}


def _take_back_state(task: Task, request: Context) -> None:
    """Reset the state of this run in the backend, so that results ask the store.

    Celery stored that it was started or retried, or the task stored a state of its own.
    """
    if _ignores_result(task, request):
        return
    # Before it is scheduled, as a cancel may store REVOKED from then on.
    try:
        task.backend.store_result(request.id, None, states.PENDING, request=request)
    except Exception:
        logger.warning("task %s: its state is not up to date", request.id, exc_info=True)


class NotingStep(bootsteps.Step):
    """Lets a worker's consumer note the serializer of a message, which its task's request lacks.

    Celery's own retry takes the task's serializer, and so fails, or turns tuples into lists.
    """

    def __init__(self, consumer: Any, **_: Any) -> None:
        if find(consumer.app) is None or not works(Feature.PUTTING_OFF):
            return
        usual = consumer.app.conf.task_serializer

        def note(message: Any, *_: Any) -> bool:
            message.headers.pop(SERIALIZER_HEADER, None)  # any program may have written it
            with suppress(KeyError):  # the worker will refuse the message
                name = serializer_of(message.content_type)
                if name != usual:
                    message.headers[SERIALIZER_HEADER] = name
            return False

        look_first(consumer, "putoff", note)
