"""The methods of ``DelayQ`` beside those of the core; a module is imported on its first use."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..core.integration.methods import TaskMethods

if TYPE_CHECKING:
    from . import bulk, edits, health, pauses, selection, status
else:

    class _Later:
        """A module of this folder, imported when a method of it is used."""

        def __init__(self, name: str) -> None:
            self._name = f"{__package__}.{name}"

        def __getattr__(self, name: str) -> _LaterMethod:
            return _LaterMethod(self._name, name)

    class _LaterMethod:
        def __init__(self, module: str, name: str) -> None:
            self._module, self._name = module, name

        def __get__(self, delayq: object, owner: type) -> Any:
            method = getattr(import_module(self._module), self._name)
            setattr(Operations, self._name, method)
            return method.__get__(delayq, owner)

    bulk, edits, health = map(_Later, ("bulk", "edits", "health"))
    pauses, selection, status = map(_Later, ("pauses", "selection", "status"))


class Operations(TaskMethods):
    """The methods of ``DelayQ`` for keys, many tasks, edits, pauses and status."""

    edit = edits.edit
    holder = pauses.holder
    free = pauses.free
    select = selection.select
    aselect = selection.aselect
    status = status.status
    health = health.health
    pause = pauses.pause
    resume = pauses.resume
    pauses = pauses.pauses
    schedule_many = bulk.schedule_many
