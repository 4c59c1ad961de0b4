"""A task whose ``eta`` was captured has it again when it runs."""

from __future__ import annotations

from typing import Any

from celery.app.task import Task
from celery.signals import task_prerun

from ..clock import from_ms
from ..message.headers import DUE_HEADER


def give_eta() -> None:
    """Let a task that has waited in the store have the `eta` that Celery would have given it."""
    task_prerun.connect(_give_eta, dispatch_uid=__name__)


def _give_eta(task: Task, **_: Any) -> None:
    # Not in the message: the worker that receives it would wait for its eta once more.
    request = task.request
    due_ms = request.get(DUE_HEADER)
    if due_ms is not None and request.eta is None:
        request.eta = from_ms(due_ms).isoformat()
