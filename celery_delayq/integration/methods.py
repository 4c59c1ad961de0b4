"""``delay_until`` and ``delay_for`` on tasks and signatures.

Celery has no extension point that every task class and every signature passes: a custom
``base=`` need not derive from ``app.Task``, and the class of signatures is fixed. So making a
:class:`DelayQ` adds these four methods, and changes none that is there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from celery.app.task import Task
from celery.canvas import Signature

from ..clock import DelayInput, TimeInput
from . import registry

if TYPE_CHECKING:
    from .results import ScheduledResult


def _task_delay_until(task: Task, when: TimeInput, /, *args: Any, **kwargs: Any) -> ScheduledResult:
    """Run this task, with these arguments, at *when*.

    *when* is an aware datetime; a naive datetime, read in the app's time zone; Unix time in
    seconds; or ISO 8601 text. The past means at once. The other arguments are the task's.

    Raises:
        InvalidDueTime: *when* is not a time, or past 2255-06-05.
        TypeError: the arguments do not fit the task.
        kombu.exceptions.OperationalError: Redis cannot be reached.
    """
    return registry.of(task.app).send_task(task, args, kwargs, at=when)


def _task_delay_for(task: Task, delay: DelayInput, /, *args: Any, **kwargs: Any) -> ScheduledResult:
    """Run this task, with these arguments, in *delay*: a timedelta, or seconds.

    Raises as ``delay_until``.
    """
    return registry.of(task.app).send_task(task, args, kwargs, after=delay)


def _signature_delay_until(sig: Signature, when: TimeInput, /) -> ScheduledResult:
    """Run this signature at *when*; see the method of the same name on tasks."""
    return registry.of(sig.app).schedule(sig, at=when)


def _signature_delay_for(sig: Signature, delay: DelayInput, /) -> ScheduledResult:
    """Run this signature in *delay*; see the method of the same name on tasks."""
    return registry.of(sig.app).schedule(sig, after=delay)


def install() -> None:
    """Add the methods; a second call changes nothing."""
    for target, name, method in (
        (Task, "delay_until", _task_delay_until),
        (Task, "delay_for", _task_delay_for),
        (Signature, "delay_until", _signature_delay_until),
        (Signature, "delay_for", _signature_delay_for),
    ):
        if name not in vars(target):
            setattr(target, name, method)
