"""Delayed Celery tasks that wait in Redis, and can be cancelled and moved while they do."""

from .errors import AlreadyScheduled, DelayQError, InvalidDueTime
from .integration.bootstep import ScannerStep
from .integration.delayq import DelayQ
from .integration.results import ScheduledResult
from .operations.task import ScheduledTask
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
