"""Delayed Celery tasks that wait in Redis, and can be cancelled and rescheduled while they do.

Stable are the names in ``__all__`` with their documented attributes, the classes of
``celery_delayq.errors`` and ``celery_delayq.signals``,
``celery_delayq.contrib.django:DelayQDjangoTask``, ``delay_until`` and ``delay_for`` on tasks and
signatures, the same two with ``_on_commit`` on tasks of a Django project, the options and settings
``delayq_…``, and ``celery_delayq:ScannerStep``. Every other name can change with any release.
"""

from .errors import AlreadyScheduled, DelayQError, InvalidDueTime
from .integration.bootstep import ScannerStep as ScannerStep
from .integration.delayq import DelayQ
from .integration.putoff import Defer
from .integration.results import ScheduledResult
from .integration.task import DelayQTask
from .operations.task import ScheduledTask
from .scheduling.items import Item
from .store import Outcome, State

__version__ = "0.1.0"

# What a user's module imports and annotates with. The scanner's step is not among it, as making a
# DelayQ adds it; its name is for an app that lists its steps by hand.
__all__ = [
    "AlreadyScheduled",
    "Defer",
    "DelayQ",
    "DelayQError",
    "DelayQTask",
    "InvalidDueTime",
    "Item",
    "Outcome",
    "ScheduledResult",
    "ScheduledTask",
    "State",
]
