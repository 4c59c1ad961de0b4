"""Sends signals and events about what happens to tasks.

    a step --> hooks --> telling --> celery_delayq.signals, task_revoked
                                 --> sending: task-sent, task-revoked
    a retry that is cancelled early --> retries --> REVOKED

``celery_delayq/signals.py``, which users import, has the signals themselves.
"""

from __future__ import annotations

from .retries import set_up
from .telling import hooks

__all__ = ["hooks", "set_up"]
