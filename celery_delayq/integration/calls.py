"""A call of a task or of a signature, whose result can be cancelled and rescheduled."""

from __future__ import annotations

from typing import Any

from celery.app.task import Task
from celery.canvas import Signature

from .. import clock
from ..clock import When
from ..scheduling.calls import schedule_call, schedule_signature
from ..scheduling.request import Request
from ..services import Services
from ..store import Receipt
from .results import ScheduledResult, has_run, scheduled


def call_task(
    services: Services,
    task: Task,
    when: When,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    **options: Any,
) -> ScheduledResult[Any]:
    """Schedule one call of a task; its result."""
    made = schedule_call(services, task.apply_async, when, args, kwargs, **options)
    return _result(services, when, *made)


def call_signature(
    services: Services, signature: Signature, when: When, **options: Any
) -> ScheduledResult[Any]:
    """Schedule a signature, or a canvas; its result."""
    return _result(services, when, *schedule_signature(services, signature, when, **options))


def _result(
    services: Services, when: When, result: Any, receipt: Receipt | None
) -> ScheduledResult[Any]:
    if receipt is not None:
        return scheduled(
            result, services, receipt.due_ms, existed=receipt.existed, replicas=receipt.replicas
        )
    asked_for = Request(when).expected_due()
    return has_run(result, services, clock.to_ms(asked_for, services.timezone))
