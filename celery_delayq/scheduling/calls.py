"""One call: a task or a signature is sent Celery's own way, and its message is scheduled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from celery.canvas import Signature
from celery.result import AsyncResult, EagerResult

from ..clock import When
from ..errors import NotScheduled
from ..message import canvas
from ..services import Services
from ..store import Delivery, Receipt
from .options import terms_of
from .request import OPTION, Ready, Request, options_of_entry, watching
from .writing import write_one

Apply = Callable[..., Any]


def schedule_call(
    services: Services,
    apply_async: Apply,
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
        **options: See :mod:`.options`.

    Returns:
        What ``apply_async`` returned, and the store's receipt; none where the task has run at
        once, because of ``task_always_eager``. Where an earlier task was kept, that one's result
        and receipt. An ``apply_async`` that sends nothing, and returns an earlier call's result,
        has done what it is for: that result, and what the store has of it, if it waits.

    Raises:
        DelayQError: why it was not scheduled.
        NotScheduled: it was sent; somebody's ``apply_async`` drops options.
    """
    # Celery drops what a sender returns, so the receipt comes by this list.
    receipts: list[Receipt] = []

    def take(ready: Ready) -> None:
        receipts.append(write_one(services, ready, given_out=given_out))

    with watching() as sent:
        result = apply_async(*args, **{OPTION: Request(when, take, delivery=delivery), **options})
    if receipts:
        (receipt,) = receipts[:1]
        return _kept(services, result, receipt) if receipt.existed else result, receipt
    if isinstance(result, EagerResult) or services.app.conf.task_always_eager:
        return result, None
    refuse_sent(result, sent)
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


def refuse_sent(result: Any, sent: list[str]) -> None:
    """Look at what a call returned that scheduled nothing.

    Raises:
        NotScheduled: it has sent the task that it returned the result of.
    """
    # Something else may have been sent on the way, by an `apply_async` that does more than that.
    task_id = getattr(result, "id", sent[0] if sent else None)
    if task_id in sent:
        raise NotScheduled(str(task_id))


def _receipt_of(services: Services, result: Any) -> Receipt | None:
    entry = services.entries.find(result.id) if isinstance(result, AsyncResult) else None
    return Receipt(entry.task_id, entry.due_ms, existed=True) if entry else None


def schedule_signature(
    services: Services, signature: Signature, when: When, **options: Any
) -> tuple[Any, Receipt | None]:
    """The same for a signature; a canvas becomes one entry, applied when it is due."""
    # Its own and those of its parts: a signature that was frozen has ids that somebody knows.
    given_out = canvas.has_ids(signature)
    of_entry = options_of_entry(signature.options)
    is_eager = services.app.conf.task_always_eager
    if is_eager:
        terms_of({**of_entry, **options})  # nobody else looks at them
    if is_eager or not canvas.is_canvas(signature):
        return schedule_call(services, signature.apply_async, when, given_out=given_out, **options)
    result, launch = canvas.freeze(signature, services.app, of_entry)
    kept, receipt = schedule_call(
        services, launch.apply_async, when, given_out=given_out, **options
    )
    return (kept if receipt and receipt.existed else result), receipt
