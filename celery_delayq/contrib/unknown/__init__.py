"""Puts tasks that a worker does not know, or cannot read, back into the store.

    a message of the store --> unknown task, or unreadable --> its consumer's hook          net
         ^                                                        |  a thread: stored, then ack
         |                                                        v                       keeping
         +------ in 1, 2, 4 ... 60 minutes <--- an entry with the tag of such tasks
                                                        |  for delayq_unknown_for
                                                        '--> dead

Plain Celery discards such a message. During a rollout it may be a task that another worker knows,
or that the next version brings back. A message that did not come out of the store stays Celery's.
"""

from __future__ import annotations

from ...operations.health import Check, Sight

__all__ = ["checks"]


def checks() -> list[Check[Sight]]:
    """Return what ``health`` and the doctor look at."""
    from .checking import CHECK

    return [CHECK]
