"""Celery's signals of what becomes of a scheduled task."""

from __future__ import annotations

from functools import partial
from typing import Any

from celery import Celery
from celery.app.task import Context
from celery.signals import task_revoked

from ..logs import logger_of
from ..message.body import message_body
from ..services import Hooks

logger = logger_of(__name__)


def hooks(app: Celery) -> Hooks:
    """What tells the app's handlers: ``task_revoked`` of a scheduled task that is cancelled."""
    return Hooks(cancelled=partial(_revoked, app))


def _revoked(app: Celery, task_id: str, message: bytes) -> None:
    """Send the signal as a worker does; here in the process that cancelled."""
    if not task_revoked.receivers:
        return
    try:
        request = _request_of(app, message)
        # What is known by its name only has no other sender.
        sender = app.tasks.get(request.task, request.task)
        task_revoked.send(
            sender=sender, request=request, terminated=False, signum=None, expired=False
        )
    except Exception:
        logger.warning("task %s: task_revoked could not be sent", task_id, exc_info=True)


def _request_of(app: Celery, message: bytes) -> Context:
    headers, properties, body = message_body(message, app.conf.accept_content)
    if isinstance(body, dict):  # protocol 1
        return Context({**headers, **properties, **body})
    # What the app does not accept stays unread.
    args, kwargs, embedded = body or (None, None, None)
    call: dict[str, Any] = {"args": args, "kwargs": kwargs}
    return Context({**headers, **properties, **(embedded or {}), **call})
