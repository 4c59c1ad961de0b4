"""Signals of what becomes of scheduled tasks, in Celery's own form.

    @task_scheduled.connect
    def count(sender, task_id, due, **_): ...

The sender is the app. Each is sent after the step, once its answer is known, by the process that
took the step and in its thread: the first four by the caller, the others by a scanner. What a
receiver raises is logged, and changes nothing. A process that dies, or is interrupted, between a
step and its signal sends none.

==================== =========================================================================
``task_scheduled``   ``task_id``; ``due``: aware datetime, UTC
``task_rescheduled`` ``task_id``, ``due``: moved, also by ``run_now`` and ``retry``
``task_edited``      ``task_id``
``task_cancelled``   ``task_id``; ``reason``: text; it was removed, or replaced. ``uncertain``:
                     bool, an earlier attempt may have delivered it
``task_skipped``     ``task_id``, ``reason``: too late to leave, and removed
``task_handed_over`` ``task_ids``: list, a batch that went to its queues; what is published once
                     more is told once more
``task_dead``        ``task_id``, ``reason``: not tried any more
==================== =========================================================================
"""

from __future__ import annotations

from celery.utils.dispatch import Signal

__all__ = [
    "task_cancelled",
    "task_dead",
    "task_edited",
    "task_handed_over",
    "task_rescheduled",
    "task_scheduled",
    "task_skipped",
]

task_scheduled = Signal(name="delayq_task_scheduled", providing_args={"task_id", "due"})
task_rescheduled = Signal(name="delayq_task_rescheduled", providing_args={"task_id", "due"})
task_edited = Signal(name="delayq_task_edited", providing_args={"task_id"})
task_cancelled = Signal(
    name="delayq_task_cancelled", providing_args={"task_id", "reason", "uncertain"}
)
task_skipped = Signal(name="delayq_task_skipped", providing_args={"task_id", "reason"})
task_handed_over = Signal(name="delayq_task_handed_over", providing_args={"task_ids"})
task_dead = Signal(name="delayq_task_dead", providing_args={"task_id", "reason"})
