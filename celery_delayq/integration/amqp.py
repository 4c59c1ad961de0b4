"""The app's ``AMQP`` class, which lets messages be scheduled instead of published.

Celery asks it to make each message (``as_task_v2``), to make the function that sends one
(``_create_task_sender``), and where to (``Router``). Nothing else is overridden.
"""

from __future__ import annotations

from typing import Any

from celery.app.amqp import AMQP
from celery.utils.imports import symbol_by_name

from ..message import native_delay
from ..scheduling.decision import decided
from ..scheduling.sender import Send, Sender
from .registry import services_of


class SchedulingMixin:
    """What an ``AMQP`` class needs to schedule what asks for it."""

    app: Any
    is_celerys_own = False

    def _create_task_sender(self) -> Send:
        return Sender(services_of(self.app), super()._create_task_sender())  # type: ignore[misc]

    def Router(self, *args: Any, **options: Any) -> Any:  # noqa: N802 - Celery's name
        return native_delay.noting(super().Router(*args, **options))  # type: ignore[misc]

    def as_task_v2(self, *args: Any, **options: Any) -> Any:
        message = super().as_task_v2(*args, **options)  # type: ignore[misc]
        return decided(services_of(self.app), message, args, options)


class SchedulingAMQP(SchedulingMixin, AMQP):
    """Celery's own ``AMQP`` that schedules."""

    is_celerys_own = True


def scheduling_amqp(base: Any) -> Any:
    """The app's AMQP class *base*, able to schedule; by name if it can be, as apps get pickled."""
    base = symbol_by_name(base)
    if issubclass(base, SchedulingMixin):  # of a copied app
        return base
    if base is AMQP:
        return f"{__name__}:{SchedulingAMQP.__name__}"
    return type(base.__name__, (SchedulingMixin, base), {})
