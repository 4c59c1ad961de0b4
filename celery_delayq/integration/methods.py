"""``delay_until`` and ``delay_for`` on tasks and signatures, and ``defer`` on tasks.

Celery has no extension point that every task class and every signature passes: a custom
``base=`` need not derive from ``app.Task``, and the class of signatures is fixed. So making a
:class:`DelayQ` adds these methods, and changes none that is there. On tasks they are those
of :class:`DelayQTask`, which type checkers know as well.
"""

from __future__ import annotations

from typing import Any

from celery.app.task import Task
from celery.canvas import Signature

from .. import clock
from ..clock import DelayInput, TimeInput
from ..errors import InvalidOption
from ..message.canvas import is_canvas
from ..services import services_of
from .calls import call_signature
from .results import ScheduledResult
from .task import DelayQTask


def _signature_delay_until(
    sig: Signature, when: TimeInput, /, *args: Any, **kwargs: Any
) -> ScheduledResult:
    """Run this signature at *when*; see the method of the same name on tasks.

    More arguments are added as ``delay`` does it; to a canvas none can be.
    """
    services = services_of(sig.app)
    return call_signature(services, _with(sig, args, kwargs), clock.at(when, services.timezone))


def _signature_delay_for(
    sig: Signature, delay: DelayInput, /, *args: Any, **kwargs: Any
) -> ScheduledResult:
    """Run this signature in *delay*; as ``delay_until``."""
    return call_signature(services_of(sig.app), _with(sig, args, kwargs), clock.after(delay))


def _with(sig: Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Signature:
    if not args and not kwargs:
        return sig
    if is_canvas(sig):
        raise InvalidOption("arguments", (args, kwargs), "none: those of a canvas are its tasks'")
    added: Signature = sig.clone(args, kwargs)
    return added


def install() -> None:
    """Add the methods; a second call changes nothing."""
    for target, name, method in (
        (Task, "delay_until", DelayQTask.delay_until),
        (Task, "delay_for", DelayQTask.delay_for),
        (Task, "defer", DelayQTask.defer),
        (Signature, "delay_until", _signature_delay_until),
        (Signature, "delay_for", _signature_delay_for),
    ):
        if name not in vars(target):
            setattr(target, name, method)
