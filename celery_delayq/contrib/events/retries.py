"""Lets a retry that is cancelled before its worker stored ``RETRY`` end up ``REVOKED``."""

from __future__ import annotations

from typing import Any

from celery import Celery
from celery.app.task import Context, Task
from celery.signals import task_retry

from ...core.services import find
from ...core.text import logger_of

logger = logger_of(__name__)

# Attributes of a running task's request: its next run is scheduled, or gave way to another task.
_RETRIED, _GAVE_WAY = "delayq_retried", "delayq_gave_way"


def set_up(_app: Celery) -> None:
    """Let a worker that has stored RETRY check whether the retry is cancelled already."""
    task_retry.connect(_retried, dispatch_uid=__name__)


def note_scheduled(running: Task) -> None:
    """Note that the next run of this running task is scheduled."""
    setattr(running.request, _RETRIED, True)
    setattr(running.request, _GAVE_WAY, False)


def note_gave_way(running: Task) -> None:
    """Note that the next run of this running task is not, as another task was kept."""
    setattr(running.request, _GAVE_WAY, not getattr(running.request, _RETRIED, False))


def _retried(sender: Task, request: Context, **_: Any) -> None:
    """Store REVOKED again for a retry that was cancelled before the worker stored RETRY.

    A cancel after this check stores REVOKED after RETRY by itself. A retry that was not scheduled,
    as another task with its key was kept, is REVOKED too.
    """
    services = find(sender.app)
    if services is None or request.ignore_result:
        return
    gave_way = getattr(request, _GAVE_WAY, False)
    if not gave_way and not getattr(request, _RETRIED, False):
        return
    try:
        if gave_way or services.entries.cancelled_ms_ago(request.id) is not None:
            # The cancel has notified its chord, which counts each part once.
            context = Context({**vars(request), "chord": None})
            why = "kept another" if gave_way else "cancelled"
            sender.backend.mark_as_revoked(request.id, why, request=context)
    except Exception:
        logger.warning("task %s: REVOKED could not be stored", request.id, exc_info=True)
