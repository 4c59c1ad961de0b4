"""Delayed Celery tasks that wait in Redis, where you can cancel and reschedule them.

These names are stable: those in ``__all__`` with their documented attributes, the classes of
``celery_delayq.errors`` and ``celery_delayq.signals``,
``celery_delayq.contrib.django:DelayQDjangoTask``, ``delay_until`` and ``delay_for`` on tasks and
signatures, the same two with ``_on_commit`` on tasks of a Django project, the options and settings
``delayq_…``, and ``celery_delayq:ScannerStep``. Every other name can change with any release.

A name's module is imported when the name is first used: pytest imports this package in every run,
and most runs do not need Celery.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .errors import AlreadyScheduled, DelayQError, InvalidDueTime
    from .integration.bootstep import ScannerStep as ScannerStep
    from .integration.delayq import DelayQ
    from .integration.results import ScheduledResult
    from .integration.task import DelayQTask
    from .operations.scheduled_task import ScheduledTask
    from .putoff.defer import Defer
    from .scheduling.items import Item
    from .store import Outcome, State

__version__ = "0.1.0"

# The names that users import and annotate with.
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

_MODULES = {
    "AlreadyScheduled": "errors",
    "Defer": "putoff.defer",
    "DelayQ": "integration.delayq",
    "DelayQError": "errors",
    "DelayQTask": "integration.task",
    "InvalidDueTime": "errors",
    "Item": "scheduling.items",
    "Outcome": "store",
    "ScheduledResult": "integration.results",
    "ScheduledTask": "operations.scheduled_task",
    "State": "store",
    # For an app that lists its steps itself; not public above, as creating a DelayQ adds it.
    "ScannerStep": "integration.bootstep",
}


def __getattr__(name: str) -> Any:
    if name in ("errors", "signals"):
        return import_module(f"{__name__}.{name}")
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
