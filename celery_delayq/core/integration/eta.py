"""Restores a captured ``eta`` when the task runs."""

from __future__ import annotations

from typing import Any

from celery.app.task import Task
from celery.signals import task_prerun

from ..clock import from_ms
from ..message.headers import DUE_HEADER


def give_eta() -> None:
    """Give running tasks that waited in the store the ``eta`` that Celery would have set."""
    task_prerun.connect(_give_eta, dispatch_uid=__name__)


def _give_eta(task: Task, **_: Any) -> None:
    # It cannot be in the message, or the worker that receives it would wait for it again.
    request = task.request
    due_ms = request.get(DUE_HEADER)
    if due_ms is not None and request.eta is None:
        request.eta = from_ms(due_ms).isoformat()
