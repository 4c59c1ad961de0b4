"""Stores ``REVOKED`` in the result backend, so that no caller waits for a cancelled task in vain.

The same holds for a task that another one replaced, or that gave way to another one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from celery import Celery, states
from celery.app.task import Context

from .leaves import leaf
from .logs import logger_of
from .message.body import message_body
from .message.headers import LAUNCH
from .store.values import Cancelled, Outcome

logger = logger_of(__name__)


def mark_revoked(app: Celery, cancelled: Cancelled, *, late: bool = False) -> bool:
    """Store ``REVOKED``, and why, for a task that will not run, or for every part of a canvas.

    Never raises: the task is cancelled, and that answer must not depend on the result backend.

    Args:
        app: The app.
        cancelled: The task.
        late: Whether it was cancelled a while ago. A result that was stored since stays: it is from
            another task with this id, or from a copy that was delivered after all.

    Returns:
        Whether that is done.
    """
    try:
        waited_for = _waited_for(app, cancelled.task_id, cancelled.message)
    except Exception:
        logger.warning("task %s: its message cannot be read", cancelled.task_id, exc_info=True)
        return True  # it never can be
    try:
        for task_id, request in waited_for:
            state = states.PENDING
            if late or cancelled.outcome is Outcome.UNCERTAIN:
                state = app.backend.get_state(task_id)
            if state == states.PENDING or (late and state == states.RETRY):
                app.backend.mark_as_revoked(task_id, cancelled.reason, request=request)
    except Exception:
        logger.warning("task %s: REVOKED could not be stored", cancelled.task_id, exc_info=True)
        return False
    return True


def take_back(app: Celery, cancelled: Cancelled) -> None:
    """Reset ``REVOKED``, stored after the task's id had been scheduled anew; never raises."""
    try:
        for task_id, request in _waited_for(app, cancelled.task_id, cancelled.message):
            # A state that the new task has stored since stays.
            if app.backend.get_task_meta(task_id, cache=False)["status"] == states.REVOKED:
                app.backend.store_result(task_id, None, states.PENDING, request=request)
    except Exception:
        logger.warning("task %s: it waits, and is REVOKED", cancelled.task_id, exc_info=True)


def _waited_for(app: Celery, task_id: str, message: bytes) -> list[tuple[str, Any]]:
    accept = app.conf.accept_content
    headers, properties, body = decoded = message_body(message, accept)
    # The rpc:// backend sends a result to this address, which a worker takes from the message's
    # properties. The results of a canvas's parts go to the canvas's caller.
    reply_to = properties.get("reply_to")
    if headers.get("task") == LAUNCH:
        return [
            # Without its chord, which counts no parts before the launch.
            (part_id, _request(call, part_id, reply_to, chord=None))
            for part_id, part in leaf("canvas").parts_of(body)
            for call in [_call_of(*message_body(part, accept)) if part else {}]
        ]
    if headers.get("ignore_result"):
        return []
    # With its chord, which has to fail now instead of waiting forever for this part.
    return [(task_id, _request(_call_of(*decoded), task_id, reply_to))]


def _request(call: Mapping[str, Any], task_id: str, reply_to: Any, **own: Any) -> Any:
    return Context({**call, "reply_to": reply_to, "correlation_id": task_id, **own})


def _call_of(headers: dict[str, Any], properties: dict[str, Any], body: Any) -> dict[str, Any]:
    """Describe a call as the worker does that drops a revoked task: for ``result_extended``."""
    call = {**headers, "delivery_info": properties.get("delivery_info")}
    if isinstance(body, dict):  # of protocol 1
        return {**call, **body, "group": body.get("taskset")}
    if isinstance(body, (list, tuple)):  # else the app may not read it
        args, kwargs, embedded = body
        call.update(embedded, args=args, kwargs=kwargs)
    return call
