"""A call of a task or a signature goes Celery's own way, and its message is scheduled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from celery.canvas import Signature
from celery.result import AsyncResult, EagerResult, GroupResult

from .. import clock
from ..clock import When
from ..leaves import leaf
from ..message.signatures import is_canvas
from ..scheduling.intercept import Request
from ..scheduling.options import entry_options_of, options_of_entry
from ..services import Services
from ..store import Delivery, Receipt
from .results import ScheduledResult, scheduled


def schedule_call(
    services: Services,
    apply_async: Callable[..., Any],
    when: When,
    *args: Any,
    given_out: bool = False,
    delivery: Delivery | None = None,
    **options: Any,
) -> tuple[Any, Receipt | None]:
    """Call ``apply_async(*args, **options)`` so that its message is due at *when*.

    Args:
        services: Of the app that sends it.
        apply_async: The method.
        when: The due time.
        *args: Its arguments.
        given_out: Whether somebody knows the task's id already.
        delivery: The message that it is about, which a broker delivered.
        **options: See :mod:`celery_delayq.scheduling.options`.

    Returns:
        What ``apply_async`` returned, and the store's receipt; none where the task has run at
        once, because of ``task_always_eager``. Where an earlier task was kept, that one's result
        and receipt. An ``apply_async`` that sends nothing, and returns an earlier call's result,
        has done what it is for: that result, and what the store has of it, if it waits.

    Raises:
        DelayQError: why it was not scheduled.
        NotScheduled: it was sent; somebody's ``apply_async`` drops options.
    """
    request = Request(when, delivery, given_out=given_out)
    result = request.sent_by(apply_async, *args, **options)
    receipt = request.receipt
    if receipt is not None:
        return _kept(services, result, receipt) if receipt.existed else result, receipt
    if isinstance(result, EagerResult) or services.app.conf.task_always_eager:
        return result, None
    request.refuse_sent(result)
    return result, _receipt_of(services, result)


def _kept(services: Services, result: Any, receipt: Receipt) -> AsyncResult:
    """The result of the task that was kept, in place of the one that Celery made for the call."""
    kept: AsyncResult = services.app.AsyncResult(receipt.task_id)
    running = services.app.current_worker_task
    children = running.request.children if running is not None else None
    # A running task's result names its children, and whoever asks for them would wait for ever.
    if children and children[-1] is result:
        children[-1] = kept
    return kept


def _receipt_of(services: Services, result: Any) -> Receipt | None:
    entry = services.entries.find(result.id) if isinstance(result, AsyncResult) else None
    return Receipt(entry.task_id, entry.due_ms, existed=True) if entry else None


def call(
    services: Services, apply_async: Callable[..., Any], when: When, *args: Any, **options: Any
) -> ScheduledResult[Any]:
    """Schedule one call, as :func:`schedule_call`; its result can be cancelled and rescheduled."""
    return result_of(services, when, *schedule_call(services, apply_async, when, *args, **options))


def call_signature(
    services: Services, signature: Signature, when: When, **options: Any
) -> ScheduledResult[Any]:
    """The same for a signature; a canvas becomes one entry, applied when it is due."""
    of_entry = options_of_entry(signature.options)
    is_eager = services.app.conf.task_always_eager
    if is_eager:
        entry_options_of({**of_entry, **options})  # nobody else looks at them
    if is_canvas(signature) and not is_eager:
        held: ScheduledResult[Any] = leaf("canvas").schedule(
            services, signature, when, of_entry, **options
        )
        return held
    # A signature that was frozen has an id that somebody knows.
    given_out = bool(signature.options.get("task_id"))
    return call(services, signature.apply_async, when, given_out=given_out, **options)


def result_of(
    services: Services, when: When, result: Any, receipt: Receipt | None
) -> ScheduledResult[Any]:
    """What ``apply_async`` returned, able to be cancelled and rescheduled."""
    if receipt is not None:
        return scheduled(
            result, services, receipt.due_ms, existed=receipt.existed, replicas=receipt.replicas
        )
    if not isinstance(result, (EagerResult, GroupResult)) or result.id is None:
        # Of an apply_async of the user's own: of an earlier call, or of one that it rejected.
        made: ScheduledResult[Any] = result
        return made
    due_ms = clock.to_ms(Request(when).expected_due(), services.timezone)
    return scheduled(result, services, due_ms, has_run=True)
