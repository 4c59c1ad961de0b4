"""Schedules canvases: a workflow waits as one entry, whose task launches it at its due time.

    schedule(chain) --> first parts --> Celery applies it; its messages are kept, not sent
                                          |
                                          v
                        an entry: celery_delayq.launch(messages, ids)
                                          | due, in a worker
                                          +--> they are published
                                          '--> broker or result backend away: the rest waits

The entry has the id of the canvas's result, so ``result.id`` cancels and reschedules it.
"""

from .launching import configured
from .scheduling import messages_of, parts_of, renamed, schedule, task_ids

__all__ = ["configured", "messages_of", "parts_of", "renamed", "schedule", "task_ids"]
