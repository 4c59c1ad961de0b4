"""``delay_until`` and ``delay_for`` on tasks and signatures.

Celery has no extension point that every task class and every signature passes: a custom
``base=`` need not derive from ``app.Task``, and the class of signatures is fixed. So making a
:class:`DelayQ` adds these four methods, and changes none that is there.
"""

from __future__ import annotations

from typing import Any

from celery.app.task import Task
from celery.canvas import Signature

from .. import clock
from ..clock import DelayInput, TimeInput
from .registry import services_of
from .results import ScheduledResult, call_signature, call_task


def _task_delay_until(task: Task, when: TimeInput, /, *args: Any, **kwargs: Any) -> ScheduledResult:
    """Run this task, with these arguments, at *when*.

    *when* is an aware datetime; a naive datetime, read in the app's time zone; Unix time in
    seconds; or ISO 8601 text. The past means at once. The other arguments are the task's.

    Raises:
        InvalidDueTime: *when* is not a time, or past 2255-06-05.
        TypeError: the arguments do not fit the task.
        kombu.exceptions.OperationalError: Redis cannot be reached.
    """
    services = services_of(task.app)
    return call_task(services, task, clock.at(when, services.timezone), args, kwargs)


def _task_delay_for(task: Task, delay: DelayInput, /, *args: Any, **kwargs: Any) -> ScheduledResult:
    """Run this task, with these arguments, in *delay*: a timedelta, or seconds.

    Raises as ``delay_until``.
    """
    return call_task(services_of(task.app), task, clock.after(delay), args, kwargs)


def _signature_delay_until(sig: Signature, when: TimeInput, /) -> ScheduledResult:
    """Run this signature at *when*; see the method of the same name on tasks."""
    services = services_of(sig.app)
    return call_signature(services, sig, clock.at(when, services.timezone))


def _signature_delay_for(sig: Signature, delay: DelayInput, /) -> ScheduledResult:
    """Run this signature in *delay*; see the method of the same name on tasks."""
    return call_signature(services_of(sig.app), sig, clock.after(delay))


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
