"""Celery's signals: one that tells of a scheduled task, and one that is listened to."""

from __future__ import annotations

from functools import partial
from typing import Any

from celery import Celery
from celery.app.task import Context, Task
from celery.signals import task_prerun, task_retry, task_revoked

from ..clock import from_ms
from ..logs import logger_of
from ..message.body import message_body
from ..message.headers import DUE_HEADER
from ..services import Hooks
from .registry import find

logger = logger_of(__name__)


# Of a running task's request, once its next run is scheduled; or was not, as another was kept.
_RETRIED, _GAVE_WAY = "delayq_retried", "delayq_gave_way"


def hooks(app: Celery) -> Hooks:
    """What tells the app's handlers: ``task_revoked`` of a scheduled task that is cancelled."""
    return Hooks(
        scheduled=partial(_scheduled, app),
        cancelled=partial(_revoked, app),
        hears_cancelled=_hears_revoked,
    )


def listen() -> None:
    """Let a worker that has stored RETRY look whether the retry is cancelled already."""
    task_retry.connect(_retried, dispatch_uid=__name__)


def give_eta() -> None:
    """Let a task that has waited in the store have the `eta` that Celery would have given it."""
    task_prerun.connect(_give_eta, dispatch_uid=__name__)


def _give_eta(task: Task, **_: Any) -> None:
    # Not in the message: the worker that receives it would wait for its eta once more.
    request = task.request
    due_ms = request.get(DUE_HEADER)
    if due_ms is not None and request.eta is None:
        request.eta = from_ms(due_ms).isoformat()


def _scheduled(app: Celery, task_id: str, _due_ms: int) -> None:
    running = app.current_worker_task
    if running is not None and running.request.id == task_id:
        setattr(running.request, _RETRIED, True)


def _retried(sender: Task, request: Context, **_: Any) -> None:
    """Store REVOKED once more, for a retry that was cancelled before the worker stored RETRY.

    Whoever cancels after this look stores REVOKED after RETRY. A retry may also be none, as its key
    is another's.
    """
    services = find(sender.app)
    if services is None or request.ignore_result:
        return
    gave_way = getattr(request, _GAVE_WAY, False)
    if not gave_way and not getattr(request, _RETRIED, False):
        return
    try:
        if gave_way or services.entries.cancelled_ms_ago(request.id) is not None:
            # Its chord has been told by whoever cancelled, and counts.
            told = Context({**vars(request), "chord": None})
            why = "kept another" if gave_way else "cancelled"
            sender.backend.mark_as_revoked(request.id, why, request=told)
    except Exception:
        logger.warning("task %s: REVOKED could not be stored", request.id, exc_info=True)


def _hears_revoked() -> bool:
    return bool(task_revoked.receivers)


def _revoked(app: Celery, task_id: str, message: bytes) -> None:
    """Send the signal as a worker does; here in the process that cancelled."""
    running = app.current_worker_task
    if running is not None and running.request.id == task_id:
        # What was scheduled, and cancelled since, did not give way.
        setattr(running.request, _GAVE_WAY, not getattr(running.request, _RETRIED, False))
    if not _hears_revoked():
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
