"""Lists the last things that happened to tasks.

    one task: scripts --> history          --+
    many:     scripts --> history_changes  --+--> newest --> DelayQ.history, ``delayq history``
                      +-> history_parts    --+    if you ask for one change, or one task

Scripts write these lists of the store if ``delayq_history``, the number to keep of each, is set. So
a change of many is one line, and its tasks push no other event out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.services import Services

if TYPE_CHECKING:
    from ...core.tasks.scheduled_task import Named
    from .newest import Event


class HistoryMethods:
    """The methods of the history."""

    services: Services

    def history(
        self, limit: int | None = None, *, of: Named | None = None, bulk: str | None = None
    ) -> list[Event]:
        """The last events of tasks and pauses, each with the name of its author, if that is known.

        A change of many tasks is one event, with their number as its ``count``. Its ``bulk`` names
        it: ``history(bulk=event.bulk)`` returns the event, and one for each of its tasks.

        The setting ``delayq_history`` turns this on, and says how many to keep of each kind: events
        of tasks that were changed by themselves; changes of many, and pauses; and tasks of such
        changes. So a change of many pushes no task's event out. If its own tasks are too many, the
        latest are kept.

        Args:
            limit: The maximum number of events.
            of: Only the events of this task, also those in changes of many.
            bulk: Only this change of many, and then its tasks.

        Returns:
            Events with ``what``, ``when``, ``id``, ``key``, ``due``, ``task``, ``queue``,
            ``actor``, ``count`` and ``bulk``, newest first. ``task`` is empty if this app has no
            such task, and none of its latest ones is in the store; ``queue`` is empty if it is
            neither one of the app's queues, nor paused, nor the queue of a task due next.

        Raises:
            InvalidOption: *limit* is not a whole number, or below 0; or *bulk* is no such name.
        """
        from .newest import history

        return history(self.services, limit=limit, of=of, bulk=bulk)
