"""Schedules canvases: a workflow waits as one entry, whose task applies it at its due time.

    schedule(chain) --> freeze its ids now --> an entry: celery_delayq.launch(chain, ids)
                                                   | due, in a worker
                                                   '--> chain.apply_async()

The entry has the id of the canvas's result, so ``result.id`` cancels and reschedules it.
"""

from .launching import configured, schedule, task_ids

__all__ = ["configured", "schedule", "task_ids"]
