"""Steps over a selection that give each task a new message.

read a batch --> make the new records --> write them, each if it is unchanged
      ^                                             |
      +---------- changed since they were read -----+
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar

from ..core import clock
from ..core.errors import StoreUnavailable
from ..core.hooks import part_of
from ..core.services import Services
from ..core.store import Filter, Match, Outcome, Shard, target_of_member
from ..core.store.changes import Rewrite, rewritten
from ..core.store.record import NewRecord, Record
from ..core.store.selection import peek
from ..core.tasks.selection import Tally

STEP = 50  # members to read and write in one step: about 5 ms of Redis's time
STEP_BYTES = 1_000_000  # approximate limit of new records in one call

SomeTally = TypeVar("SomeTally", bound=Tally)
Part = tuple[Match, Record, NewRecord]


class Rewriting(Generic[SomeTally]):
    """An operation that rewrites the tasks of a selection.

    Args:
        services: The app's.
        chosen: The selection's filters.
        bulk: The name of the change.

    Attributes:
        name: The operation, to name in errors.
        releases: Whether it delivers them at once.
    """

    name: str
    releases = False

    def __init__(self, services: Services, chosen: Filter, bulk: str) -> None:
        self._services = services
        self._chosen = chosen
        self._bulk = bulk

    def new_record(self, met: Match, tally: SomeTally) -> NewRecord | None:
        """Return the new record of a task; ``None`` if that stays as it is."""
        raise NotImplementedError

    def done(self, met: Match, seen: Record, tally: SomeTally) -> None:
        """Note that a task has its new record."""

    def step(self, shard: Shard, members: Sequence[bytes], tally: SomeTally) -> None:
        """Rewrite the waiting tasks among *members*.

        Raises:
            StoreUnavailable: other processes keep changing them.
        """
        until = clock.monotonic() + self._services.settings.timeout
        left = list(members)
        while left:
            again = []
            for some in self._batches(shard, left, tally):
                parts = [
                    (
                        target_of_member(met.member),
                        Rewrite(seen, new, self.releases, chosen=self._chosen.text),
                    )
                    for met, seen, new in some
                ]
                with part_of(self._bulk):
                    changes = rewritten(shard, parts)
                for (met, seen, _), change in zip(some, changes, strict=True):
                    if change.outcome is Outcome.UNCHANGED:
                        again.append(met.member)
                        continue
                    tally.changed(change.outcome)
                    if change.outcome in (Outcome.DONE, Outcome.UNCERTAIN):
                        self.done(met, seen, tally)
            left = again
            if left and clock.monotonic() >= until:
                raise StoreUnavailable(
                    self.name, "other processes keep changing the same tasks", False
                )

    def _batches(
        self, shard: Shard, members: Sequence[bytes], tally: SomeTally
    ) -> Iterator[list[Part]]:
        """Yield the tasks to rewrite with their new records, in batches for one call each."""
        batch: list[Part] = []
        size = 0
        for met in peek(shard, self._chosen, members, reads=True):
            new = self.new_record(met, tally)
            if new is None or met.record is None:
                continue
            batch.append((met, met.record, new))
            size += new.size
            if size >= STEP_BYTES:
                yield batch
                batch, size = [], 0
        if batch:
            yield batch
