"""History: the last things that happened to tasks.

    scripts --> the store's list of events --> past --> DelayQ.history, ``celery delayq history``

Scripts write the list where ``delayq_history`` says how many events it keeps.
"""

from .newest import Event, history

__all__ = ["Event", "history"]
