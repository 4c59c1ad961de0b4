"""One call: a task or a signature is sent Celery's own way, and its message is scheduled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from celery.canvas import Signature
from celery.result import EagerResult

from ..clock import When
from ..errors import NotScheduled
from ..message import canvas
from ..services import Services
from ..store import Receipt
from .request import OPTION, Ready, Request
from .writing import write_one

Apply = Callable[..., Any]


def schedule_call(
    services: Services, apply_async: Apply, when: When, *args: Any
) -> tuple[Any, Receipt | None]:
    """Call ``apply_async(*args)`` so that its message is due at *when*.

    Returns:
        Celery's result, and the store's receipt; none where the task has run at once, because of
        ``task_always_eager``.

    Raises:
        DelayQError: why it was not scheduled.
        NotScheduled: it was sent; somebody's ``apply_async`` drops options.
    """
    # Celery drops what a sender returns, so the receipt comes by this list.
    receipts: list[Receipt] = []

    def take(ready: Ready) -> None:
        receipts.append(write_one(services, ready))

    result = apply_async(*args, **{OPTION: Request(when, take)})
    if receipts:
        return result, receipts[0]
    if isinstance(result, EagerResult) or services.app.conf.task_always_eager:
        return result, None
    raise NotScheduled(result.id)


def schedule_signature(
    services: Services, signature: Signature, when: When
) -> tuple[Any, Receipt | None]:
    """The same for a signature; a canvas becomes one entry, applied when it is due."""
    if not canvas.is_canvas(signature) or services.app.conf.task_always_eager:
        return schedule_call(services, signature.apply_async, when)
    result, launch = canvas.freeze(signature, services.app)
    _, receipt = schedule_call(services, launch.apply_async, when)
    return result, receipt
