"""Delayed Celery tasks that wait in Redis, and can be cancelled and moved while they do."""

from .bootstep import ScannerStep
from .errors import AlreadyScheduled, DelayQError, InvalidDueTime
from .extension import DelayQ
from .result import ScheduledResult
from .scheduled import ScheduledTask
from .store import Outcome, State

__version__ = "0.1.0"

__all__ = [
    "AlreadyScheduled",
    "DelayQ",
    "DelayQError",
    "InvalidDueTime",
    "Outcome",
    "ScannerStep",
    "ScheduledResult",
    "ScheduledTask",
    "State",
]
