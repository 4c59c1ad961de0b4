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
from ..store import Receipt
from .request import OPTION, Ready, Request, watching
from .writing import write_one

Apply = Callable[..., Any]


def schedule_call(
    services: Services, apply_async: Apply, when: When, *args: Any
) -> tuple[Any, Receipt | None]:
    """Call ``apply_async(*args)`` so that its message is due at *when*.

    Returns:
        What ``apply_async`` returned, and the store's receipt; none where the task has run at
        once, because of ``task_always_eager``. An ``apply_async`` that sends nothing, and returns
        an earlier call's result, has done what it is for: that result, and what the store has of
        it, if it waits.

    Raises:
        DelayQError: why it was not scheduled.
        NotScheduled: it was sent; somebody's ``apply_async`` drops options.
    """
    # Celery drops what a sender returns, so the receipt comes by this list.
    receipts: list[Receipt] = []

    def take(ready: Ready) -> None:
        receipts.append(write_one(services, ready))

    with watching() as sent:
        result = apply_async(*args, **{OPTION: Request(when, take)})
    if receipts:
        return result, receipts[0]
    if isinstance(result, EagerResult) or services.app.conf.task_always_eager:
        return result, None
    refuse_sent(result, sent)
    return result, _receipt_of(services, result)


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
    return Receipt(entry.task_id, entry.due_ms) if entry else None


def schedule_signature(
    services: Services, signature: Signature, when: When
) -> tuple[Any, Receipt | None]:
    """The same for a signature; a canvas becomes one entry, applied when it is due."""
    if not canvas.is_canvas(signature) or services.app.conf.task_always_eager:
        return schedule_call(services, signature.apply_async, when)
    result, launch = canvas.freeze(signature, services.app)
    _, receipt = schedule_call(services, launch.apply_async, when)
    return result, receipt
