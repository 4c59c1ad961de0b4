"""Lets a running task put itself off, by ``raise self.defer(after=5)``.

    DelayQ(app) ---> set_up, configured    existing tasks, and tasks that are created later
    a worker ------> in_worker             tasks whose class has an ``on_bound`` of its own

``defer`` has the exception that the task raises; ``catching`` catches it and schedules the task.
"""

from __future__ import annotations

from ...core.integration.apply_async import Defer
from .catching import configured, in_worker, set_up

__all__ = ["Defer", "configured", "in_worker", "set_up"]
