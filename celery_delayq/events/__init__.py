"""Signals and events: they tell listeners what happens to tasks.

    a step --> hooks --> telling --> celery_delayq.signals, task_revoked
                                 --> sending: task-sent, task-revoked
    a retry that was cancelled meanwhile --> retries --> REVOKED

The signals themselves are in ``celery_delayq/signals.py``, which users import.
"""

from .retries import listen as set_up
from .telling import hooks

__all__ = ["hooks", "set_up"]
