"""The undo of a cancel: what was cancelled waits again, as it was.

    cancel.lua --a line of each--> undo, undo_old --undo.lua--> the entries

The setting ``delayq_undo`` says for how long, and of how many tasks, lines are kept. A line depends
on nothing else in the store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from ...core.services import Services
from ...core.tasks.scheduled_task import Named, of_one_task

if TYPE_CHECKING:
    from datetime import datetime

    from .undoing import Undoable, Undone


class UndoMethods:
    """The methods that bring back what was cancelled."""

    services: Services

    @of_one_task
    def undo(self, task_id: Named, *, now: bool = False) -> datetime:
        """Bring back a task that was cancelled or removed: it waits again, as it was.

        The setting ``delayq_undo`` says for how long, and of how many tasks, that can be done. The
        task has its id, due time, tags and attempts, its key if no other task has that, and its
        result is no longer ``REVOKED``.

        Args:
            task_id: As for :meth:`cancel`; a key names no task that has left.
            now: Whether the task is due now if its due time has come since it was cancelled.

        Returns:
            Its due time, UTC.

        Raises:
            NotUndone: it cannot be brought back; ``reason`` and the sentence say why.
        """
        from .undoing import undo_one

        return undo_one(self.services, task_id, now=now)

    def undo_all(
        self, bulk: str, *, now: bool = False, progress: Callable[[Undone], object] | None = None
    ) -> Undone:
        """Bring back the tasks that one change of many cancelled or removed, as far as it is kept.

        The setting ``delayq_undo`` says for how long, and of how many tasks, that is. You can
        repeat the call: it goes on with those that are not back.

        Args:
            bulk: The ``bulk`` of the ``Count`` that the change returned.
            now: As for :meth:`undo`.
            progress: Called after each 50 tasks with the result so far.

        Returns:
            How many are ``done``; why others were ``refused``, a list of ``NotUndone``; and how
            many are ``lost``, as no undo of theirs is kept any more (``None``: no change of that
            name is known). It is true if all are back, from this call or earlier ones.

        Raises:
            InvalidOption: *bulk* is not such a name.
            kombu.exceptions.OperationalError: Redis cannot be reached. What is back stays.
        """
        from .undoing import undo_bulk

        return undo_bulk(self.services, bulk, now=now, progress=progress)

    def undoable(self) -> Iterator[Undoable]:
        """The cancelled tasks that an undo can bring back, in no order, read as you iterate.

        Returns:
            Objects with ``id``, ``when`` it was cancelled, and the ``bulk`` of which it was one, or
            an empty text.
        """
        from .undoing import undoable

        return undoable(self.services)
