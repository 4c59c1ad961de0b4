"""Signals about scheduled tasks, in Celery's own form.

    @task_scheduled.connect
    def count(sender, task_id, due, **_): ...

The sender is the app. The process that took a step sends the signal once it has the answer, in the
same thread: the first five come from the caller, the others from a scanner. A receiver's exceptions
are logged and change nothing; in a scanner even ``SystemExit``. A process that dies between a step
and its signal sends none, so do not use signals for accounting.

Those of the caller have ``actor``, too: who acts, see ``DelayQ.acting``; empty if nobody was named.

==================== =========================================================================
``task_scheduled``   ``task_id``; ``due``: aware datetime, UTC
``task_rescheduled`` ``task_id``, ``due``: moved, also by ``run_now`` and ``retry``
``task_edited``      ``task_id``
``task_cancelled``   ``task_id``; ``reason``: text; it was removed, or replaced. ``uncertain``:
                     bool, an earlier attempt may have delivered it
``task_undone``      ``task_id``, ``due``: its cancel was undone, and it waits again
``task_skipped``     ``task_id``, ``reason``: it was too late, and was removed
``task_handed_over`` ``task_ids``: list, a batch that was delivered to its queues; tasks that are
                     published again come again
``task_dead``        ``task_id``, ``reason``: it is not tried again
==================== =========================================================================
"""

from __future__ import annotations

from typing import Any

from celery.utils import dispatch

from .core.threads import spared

__all__ = [
    "task_cancelled",
    "task_dead",
    "task_edited",
    "task_handed_over",
    "task_rescheduled",
    "task_scheduled",
    "task_skipped",
    "task_undone",
]


class Signal(dispatch.Signal):
    """Celery's; a receiver that raises ``SystemExit`` keeps it neither from others nor a scanner.

    Celery logs the exceptions of receivers, and lets through what is none.
    """

    def _live_receivers(self, sender: Any) -> list[Any]:
        return [spared(receiver) for receiver in super()._live_receivers(sender)]


task_scheduled = Signal(name="delayq_task_scheduled", providing_args={"task_id", "due", "actor"})
task_rescheduled = Signal(
    name="delayq_task_rescheduled", providing_args={"task_id", "due", "actor"}
)
task_edited = Signal(name="delayq_task_edited", providing_args={"task_id", "actor"})
task_cancelled = Signal(
    name="delayq_task_cancelled", providing_args={"task_id", "reason", "uncertain", "actor"}
)
task_undone = Signal(name="delayq_task_undone", providing_args={"task_id", "due", "actor"})
task_skipped = Signal(name="delayq_task_skipped", providing_args={"task_id", "reason"})
task_handed_over = Signal(name="delayq_task_handed_over", providing_args={"task_ids"})
task_dead = Signal(name="delayq_task_dead", providing_args={"task_id", "reason"})
