"""Delayed Celery tasks that wait in Redis, where you can cancel and reschedule them.

These names are stable: those in ``__all__`` with their documented attributes, the classes of
``celery_delayq.errors`` and ``celery_delayq.signals``,
``celery_delayq.contrib.django:DelayQDjangoTask``, ``delay_until`` and ``delay_for`` on tasks and
signatures, ``adelay_until`` and ``adelay_for`` there, ``delay_until_on_commit`` and
``delay_for_on_commit`` on tasks of a Django project, the options and settings ``delayq_…``, and
``celery_delayq:ScannerStep``. Every other name can change with any release.

A name's module is imported when the name is first used: pytest imports this package in every run,
and most runs do not need Celery.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .contrib.care import check, dump, load
    from .contrib.history import newest
    from .contrib.preflight import preflight
    from .contrib.reconcile import reconciling
    from .contrib.rules import every, face
    from .contrib.undo import undoing
    from .core.errors import AlreadyScheduled, DelayQError, InvalidDueTime
    from .core.integration.apply_async import Defer, DelayQTask
    from .core.integration.delayq import DelayQ as _DelayQ
    from .core.integration.delayq import ScannerStep as ScannerStep
    from .core.integration.results import ScheduledResult
    from .core.store import Outcome, State
    from .core.tasks.scheduled_task import ScheduledTask
    from .operations import bulk, edits, health, pauses, selection, status
    from .operations.bulk import Item

    class DelayQ(_DelayQ):
        """The class, with the methods of the parts beside the core; see ``core/leaves.py``."""

        # Written by python -m tests.types.face.
        schedule_many = bulk.schedule_many
        repair = check.repair
        edit = edits.edit
        rule = face.rule
        rules = face.rules
        history = newest.history
        free = pauses.free
        holder = pauses.holder
        pause = pauses.pause
        resume = pauses.resume
        areconcile = reconciling.areconcile
        reconcile = reconciling.reconcile
        aselect = selection.aselect
        select = selection.select
        undo = undoing.undo
        undo_all = undoing.undo_all
        undoable = undoing.undoable
        check = check.check
        dump = dump.dump
        every = every.every
        health = health.health
        load = load.load
        pauses = pauses.pauses
        preflight = preflight.preflight
        status = status.status


__version__ = "1.0.0"

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
    "Defer": "core.integration.apply_async",
    "DelayQ": "core.integration.delayq",
    "DelayQError": "errors",
    "DelayQTask": "core.integration.apply_async",
    "InvalidDueTime": "errors",
    "Item": "operations.bulk",
    "Outcome": "core.store",
    "ScheduledResult": "core.integration.results",
    "ScheduledTask": "core.tasks.scheduled_task",
    "State": "core.store",
    # For an app that lists its steps itself; not public above, as creating a DelayQ adds it.
    "ScannerStep": "core.integration.delayq",
}


def __getattr__(name: str) -> Any:
    if name in ("errors", "signals"):
        return import_module(f"{__name__}.{name}")
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # Celery looks among imported modules for the class of an error in a result backend.
    import_module(f"{__name__}.errors")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
