"""Scheduling of single calls: Celery's ``apply_async`` runs, and its message is scheduled."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from celery import Celery
from celery.app.task import Task
from celery.canvas import Signature
from celery.result import AsyncResult, EagerResult, GroupResult

from .. import clock
from ..clock import When
from ..errors import InvalidOption, NotATask
from ..leaves import leaf
from ..message.body import is_canvas
from ..scheduling.intercept import Request
from ..scheduling.options import FINISHED, KEY, UNTIL, entry_options_of, options_of_entry
from ..scheduling.writing import new_id
from ..services import Services
from ..store import Delivery, Receipt
from .results import ScheduledResult, scheduled

_ANOTHER_APP_S = (
    "a task of the app {}; for a task of another app use that app's DelayQ, or app.signature(name) "
    "to send it by its name"
)


def schedule_call(
    services: Services,
    apply_async: Callable[..., Any],
    when: When,
    *args: Any,
    options: Mapping[str, Any] = MappingProxyType({}),
    given_out: bool = False,
    delivery: Delivery | None = None,
    captured: bool = False,
) -> tuple[Any, Receipt | None]:
    """Call ``apply_async(*args, **options)`` so that its message is due at *when*.

    Args:
        services: The services of the sending app.
        apply_async: The method.
        when: The due time.
        *args: Its arguments.
        options: Its options, of Celery and of :mod:`celery_delayq.core.scheduling.options`.
        given_out: Whether a caller already knows the task's id.
        delivery: The delivered message that is being scheduled again.
        captured: Whether Celery sends the message, with an eta, if the store does not take it.

    Returns:
        The result of ``apply_async``, and the store's receipt. If an earlier task was kept, its
        result and receipt. With ``task_always_eager``, the task has run and there is no receipt;
        nor is there one if the message was left to Celery. If a custom ``apply_async`` sends
        nothing and returns an earlier call's result: that result, and a receipt if its task waits.

    Raises:
        DelayQError: the task was not scheduled.
        NotScheduled: the task was sent at once, because a custom ``apply_async`` drops options.
    """
    request = Request(when, delivery, given_out=given_out, frozen=given_out, captured=captured)
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
    apply_async: Callable[..., Any],
    when: When,
    *args: Any,
    options: Mapping[str, Any] = MappingProxyType({}),
    given_out: bool = False,
) -> ScheduledResult[Any]:
    """Schedule one call with :func:`schedule_call`; return a result that you can cancel."""
    result, receipt = schedule_call(
        services, apply_async, when, *args, options=options, given_out=given_out
    )
    return result_of(services, when, result, receipt)


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
    given_out = bool(signature.options.get("task_id"))
    options, key = dict(own), of_entry.get(KEY)
    if key is not None and not (given_out or is_eager) and services.settings.shards > 1:
        options["task_id"] = new_id(services, entry_options_of({KEY: key}).extras.key)
    return call(services, signature.apply_async, when, options=options, given_out=given_out)


def result_of(
    services: Services, when: When, result: Any, receipt: Receipt | None
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
    due_ms = clock.to_ms(Request(when).expected_due(), services.timezone)
    return scheduled(result, services, due_ms, has_run=True)


def signature_of(given: Signature | Task, app: Celery) -> Signature:
    """Return a signature, or a task without arguments, as a signature that *app* sends.

    A ``shared_task`` leads to the current app of the thread, which may be another one: the app that
    was made last, or an app named ``default``, which Celery makes for a thread without one.

    Raises:
        NotATask: it is neither.
        InvalidOption: its task is another app's.
    """
    signature = given.s() if isinstance(given, Task) else given
    if not isinstance(signature, Signature):
        raise NotATask("signature", given, f"a signature, or a task{_hint(given)}")
    # A canvas is sent part by part; `marked` looks at each part.
    return signature if is_canvas(signature) else sent_by(app, signature)


def sent_by(app: Celery, signature: Signature) -> Signature:
    """Return a plain signature as *app* sends it: with the app's own task, or by the task's name.

    Raises:
        InvalidOption: its task belongs to another app, which alone has its options.
    """
    given, name = signature._type, signature["task"]
    # The app of a task that no app has registered is Celery's proxy of the current app.
    task = given if given is not None and given.app == app else app.tasks.get(name)
    its_own = given if task is None else task
    if its_own is not None and its_own.app != app:
        raise InvalidOption("signature", name, _ANOTHER_APP_S.format(app.main))
    if signature._app is app and given in (None, task):
        return signature
    bound = Signature.__new__(type(signature))  # `clone` would make a map a plain signature
    bound.update(signature)
    bound._app, bound._type = app, task
    return bound


def _hint(given: Any) -> str:
    if isinstance(given, (AsyncResult, GroupResult)):
        return "; this task was already sent: pass task.s(...), which sends nothing"
    if isinstance(given, (list, tuple)):
        return "; schedule many one by one, or as a group"
    if isinstance(given, str):
        return "; for a task's name, pass app.signature(name)"
    return ", like task.s(...)"
