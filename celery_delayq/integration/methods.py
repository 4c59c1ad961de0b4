"""``delay_until`` and ``delay_for`` on tasks and signatures.

Celery has no extension point that every task class and every signature passes: a custom
``base=`` need not derive from ``app.Task``, and the class of signatures is fixed. So making a
:class:`DelayQ` adds these four methods, and changes none that is there. On tasks they are those
of :class:`DelayQTask`, which type checkers know as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from celery.app.task import Task
from celery.canvas import Signature

from ..clock import DelayInput, TimeInput
from . import registry
from .task import DelayQTask

if TYPE_CHECKING:
    from .results import ScheduledResult


def _signature_delay_until(sig: Signature, when: TimeInput, /) -> ScheduledResult:
    """Run this signature at *when*; see the method of the same name on tasks."""
    return registry.of(sig.app).schedule(sig, at=when)


def _signature_delay_for(sig: Signature, delay: DelayInput, /) -> ScheduledResult:
    """Run this signature in *delay*; see the method of the same name on tasks."""
    return registry.of(sig.app).schedule(sig, after=delay)


def install() -> None:
    """Add the methods; a second call changes nothing."""
    for target, name, method in (
        (Task, "delay_until", DelayQTask.delay_until),
        (Task, "delay_for", DelayQTask.delay_for),
        (Signature, "delay_until", _signature_delay_until),
        (Signature, "delay_for", _signature_delay_for),
    ):
        if name not in vars(target):
            setattr(target, name, method)
