"""The same edit of all tasks of a selection."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..core.errors import NotATask, UnreadableRecord
from ..core.message.headers import LAUNCH, warn_of_expiry
from ..core.services import Services
from ..core.store import Filter, Match, Shard
from ..core.store.record import NewRecord, Record, entry_of
from ..core.store.selection import peek
from ..core.tasks.selection import Tally
from .edits import CANVAS, Edit, edited
from .rewriting import Rewriting


class EditMany(Rewriting[Tally]):
    """An edit of the tasks of a selection.

    Args:
        services: The app's.
        chosen: The selection's filters.
        bulk: The name of the change.
        changes: The new values.
    """

    name = "edit"

    def __init__(self, services: Services, chosen: Filter, bulk: str, changes: Edit) -> None:
        super().__init__(services, chosen, bulk)
        self._changes = changes
        self._made: dict[bytes, tuple[str, int, str]] = {}
        self._edited: list[tuple[str, int, str]] = []

    def refuse_canvases(self, shard: Shard, members: Sequence[bytes]) -> None:
        """Raise ``NotATask`` if there is a canvas among *members* that cannot be edited."""
        if not self._changes.has_message:
            return
        for met in peek(shard, replace(self._chosen, tasks=(LAUNCH,)), members):
            raise NotATask("task", met.task_id, CANVAS)

    def step(self, shard: Shard, members: Sequence[bytes], tally: Tally) -> None:
        self._made.clear()
        super().step(shard, members, tally)
        warn_of_expiry(self._edited)
        self._edited.clear()

    def new_record(self, met: Match, tally: Tally) -> NewRecord | None:
        if met.record is None or met.state == "UNREADABLE":
            tally.unreadable += met.state == "UNREADABLE"
            return None
        if met.record.is_released:
            return None
        try:
            entry = entry_of(met.task_id, met.facts, met.record, met.template)
            new, expires = edited(self._services, entry, self._changes)
        except UnreadableRecord:
            tally.unreadable += 1
            return None
        self._made[met.member] = entry.task_id, entry.due_ms, expires
        return new

    def done(self, met: Match, seen: Record, tally: Tally) -> None:  # noqa: ARG002
        self._services.hooks.edited(met.task_id)
        self._edited.append(self._made[met.member])
