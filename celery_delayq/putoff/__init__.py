"""Putting off: a running task schedules itself once more, by ``raise self.defer(after=5)``.

    DelayQ(app) ---> set_up, configured    tasks that are there, and tasks that are made later
    a worker ------> in_worker             tasks whose class has an ``on_bound`` of its own

``defer`` is what a task raises; ``catching``, where it is caught, and what becomes of the task.
"""

from .catching import configured, in_worker, set_up
from .defer import Defer

__all__ = ["Defer", "configured", "in_worker", "set_up"]
