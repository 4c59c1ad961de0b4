"""Recurring tasks: a rule writes its next runs ahead, as ordinary entries.

    every(name, signature, schedule) --> a rule in the store
    a scanner's process --the slots that come next--> one step: entries, and the last slot

There is no scheduler with a loop of its own. Two processes may compute a slot, or one may do so
late: the step compares it with the last slot, so it becomes one entry at most.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from celery.signals import beat_init

if TYPE_CHECKING:
    from .step import Writer


def configured(_app: Any) -> None:
    """Let a beat process leave those entries alone that are rules."""
    beat_init.connect(_on_beat, weak=False, dispatch_uid=__name__)


def _on_beat(sender: Any, **_: Any) -> None:
    from .guard import watch

    watch(sender.app, sender.scheduler)


def beside_scanner(app: Any) -> Writer:
    """Return the writer of the command ``scan``."""
    from .step import Writer

    return Writer(app.delayq)


def listed(services: Any, **asked: Any) -> Any:
    """Return a page of the rules; see ``listing.py``.

    Raises:
        ModuleNotFoundError: cronsim is not installed.
    """
    from .listing import listed

    return listed(services, **asked)
