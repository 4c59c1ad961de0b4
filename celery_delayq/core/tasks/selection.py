"""Selections: many tasks at once, and the operations on them.

select --start--> pages of members --CHUNK at a time--> the scripts of one --> Count
           in insertion order, up to the start; the cursor follows the last processed task
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from secrets import token_hex

from ..clock import DelayInput, TimeInput, When, one_of
from ..errors import InvalidDueTime
from ..hooks import steps_of
from ..message.headers import warn_of_expiry
from ..services import Services
from ..store import (
    CHUNK,
    NOW,
    Change,
    Filter,
    Match,
    Position,
    Shard,
    changes,
    selection,
    target_of_member,
)
from ..store.changes import ALWAYS, Conditions
from ..threads import awaited
from .count import Count, Progress, Tally, report, telling_so_far
from .cursor import SelectionCursor
from .moves import Direction, conditions_of, would_move
from .queue_names import QueueNames
from .scheduled_task import ScheduledTask
from .targets import of_many

#: A step of the store for entries of a selection.
Steps = Callable[[Shard, list[bytes]], Iterator[list[Change]]]

# States that a dry run counts, as `peek.lua` returns them.
WAITING = {"SCHEDULED", "PAUSED", "DEAD", "LAPSED"}


class Selection:
    """Tasks that match given filters; :meth:`DelayQ.select` makes one.

    It visits tasks in the order in which they were scheduled, up to the moment when the selection
    was made. A task that matches throughout is visited exactly once; a task that leaves or changes
    meanwhile, at most once; a task scheduled later, never. Each method starts at the first task, or
    at the cursor that the selection was given. None of them blocks Redis for long.

    Attributes:
        bulk: The name of its changes: one line of the history has it, and what it cancels can be
            brought back under it, as far as that is kept. A selection that goes on from a cursor
            may get the name of the one before.
        cursor: The position of the last method or iteration, as text. You can store it, also in a
            URL, and pass it to ``select`` in any process.
    """

    def __init__(
        self,
        services: Services,
        chosen: Filter,
        cursor: str | None = None,
        limit: int | None = None,
    ) -> None:
        self._services = services
        self._chosen, self._limit = chosen, limit
        started = services.entries.each(selection.start)
        begun = SelectionCursor(started[0][0], chosen.digest, tuple(seq for _, seq in started))
        self._begun = begun if cursor is None else SelectionCursor.read(cursor, begun)
        self._names = [name for name, _ in started]
        self._at = self._begun
        self.bulk = token_hex(6)

    @property
    def cursor(self) -> str:
        return self._at.text

    def __iter__(self) -> Iterator[ScheduledTask]:
        """Yield the tasks, read page by page."""
        self._at, queues = self._begun, QueueNames(self._services)
        for number, shard, page in self._pages():
            for member, entry in selection.read(shard, self._chosen, page):
                self._at = self._begun.behind(number, Position.of(member))
                yield ScheduledTask.of(entry, self._services.app, queues.of(entry))
            self._at = self._begun.behind(number, Position.of(page[-1]))

    def count(self, *, progress: Progress | None = None) -> Count:
        """Return the number of matching tasks; nothing changes."""
        if self._chosen.is_found_by_way and self._limit is None:
            return self._count(progress)
        return self._would_change(lambda _: True, progress)

    @of_many
    def cancel(self, *, dry_run: bool = False, progress: Progress | None = None) -> Count:
        """Cancel them; their results become ``REVOKED``, which scanners store.

        Args:
            dry_run: Only count; ``uncertain`` then counts only tasks with an expired lease.
            progress: Called after each step with the count so far; :attr:`cursor` is then the
                position after the counted tasks.

        Raises:
            StoreError: Redis cannot be reached, or refuses a step. The error's ``so_far`` counts
                the finished tasks, and :attr:`cursor` is the position after them.
        """
        return self._remove(WAITING, dry_run, progress)

    @of_many
    def remove(self, *, dry_run: bool = False, progress: Progress | None = None) -> Count:
        """Delete the dead and the unreadable tasks; otherwise like :meth:`cancel`."""
        return self._remove({"DEAD", "UNREADABLE"}, dry_run, progress, remove=True)

    @of_many
    def reschedule(
        self,
        at: TimeInput | None = None,
        *,
        after: DelayInput | None = None,
        by: DelayInput | None = None,
        only: Direction | None = None,
        if_due: TimeInput | None = None,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> Count:
        """Change their due times; see :meth:`DelayQ.reschedule` and :meth:`cancel`.

        If the process is killed after a step but before *progress*, continuing from the stored
        cursor repeats that step. With *by*, its tasks then move twice; with *at* or *if_due*, not.

        Raises:
            InvalidDueTime: not a time, or after 2255-06-05. If *by* moves a task past that date,
                the error's ``so_far`` counts the tasks moved before it.
        """
        when = one_of(self._services.timezone, at=at, after=after, by=by)
        conditions = conditions_of(self._services.timezone, only, if_due)
        if dry_run:
            return self._would_change(
                lambda met: met.state in WAITING and would_move(met, when, conditions), progress
            )
        return self._move(when, progress, conditions=conditions)

    @of_many
    def run_now(self, *, dry_run: bool = False, progress: Progress | None = None) -> Count:
        """Deliver them at once, even if they are paused; otherwise like :meth:`cancel`."""
        return self._go("now", WAITING, dry_run, progress)

    @of_many
    def retry(self, *, dry_run: bool = False, progress: Progress | None = None) -> Count:
        """Try to deliver the dead tasks again; otherwise like :meth:`cancel`."""
        return self._go("retry", {"DEAD"}, dry_run, progress)

    # For an event loop.
    acount = awaited(count, reads=True)
    acancel = awaited(cancel)
    areschedule = awaited(reschedule)
    arun_now = awaited(run_now)

    def _go(self, mode: str, states: set[str], dry_run: bool, progress: Progress | None) -> Count:
        if dry_run:
            return self._would_change(lambda met: met.state in states, progress)
        return self._move(NOW, progress, mode=mode)

    def _move(
        self,
        when: When,
        progress: Progress | None,
        *,
        mode: str = "",
        conditions: Conditions = ALWAYS,
    ) -> Count:
        def steps(shard: Shard, targets: list[bytes]) -> Iterator[list[Change]]:
            return changes.reschedule(
                shard,
                targets,
                when,
                mode=mode,
                conditions=conditions,
                chosen=self._chosen.text,
            )

        return self._change(steps, progress)

    def _remove(
        self, states: set[str], dry_run: bool, progress: Progress | None, *, remove: bool = False
    ) -> Count:
        if dry_run:
            return self._would_change(lambda met: met.state in states, progress)
        owes = self._services.has_backend
        keeps = self._services.keeps()

        def steps(shard: Shard, targets: list[bytes]) -> Iterator[list[Change]]:
            tells = bool(self._services.hooks.hears_messages())
            return changes.cancel(
                shard,
                targets,
                revoker="scanner" if owes else "none",
                tells=tells,
                remove=remove,
                keeps=keeps,
                chosen=self._chosen.text,
            )

        return self._change(steps, progress, owes=owes, bulk=self.bulk if keeps else "")

    def _pages(self) -> Iterator[tuple[int, Shard, list[bytes]]]:
        """Yield members that may match, from the start position: number, shard, page.

        With a limit, only members that match just now, and no more than that.
        """
        left = self._limit
        for number, shard, behind in self._shards():
            name, start = self._names[number], self._begun.starts[number]
            for found in selection.pages(shard, self._chosen, name, start, behind):
                if left == 0:
                    return
                page = found
                if left is not None:
                    met = selection.peek(shard, self._chosen, found)
                    page = [match.member for match in islice(met, min(left, len(found)))]
                    left -= len(page)
                if page:
                    yield number, shard, page

    def _shards(self) -> Iterator[tuple[int, Shard, Position]]:
        """Yield the unfinished shards, each with the position to continue after."""
        for number, shard in enumerate(self._services.entries.shards):
            behind = self._begun.place_in(number)
            if behind is not None:
                yield number, shard, behind

    def _count(self, progress: Progress | None) -> Count:
        tally = Tally()
        with telling_so_far(tally):
            for number, shard, behind in self._shards():
                name, start = self._names[number], self._begun.starts[number]
                for found in selection.counts(shard, self._chosen, name, start, behind):
                    tally.add(found)
                    report(progress, tally)
        return tally.count

    def _would_change(self, would: Callable[[Match], bool], progress: Progress | None) -> Count:
        tally, self._at = Tally(), self._begun
        with telling_so_far(tally):
            for number, shard, page in self._pages():
                for met in selection.peek(shard, self._chosen, page):
                    tally.met(met.state, would=would(met))
                self._at = self._begun.behind(number, Position.of(page[-1]))
                report(progress, tally)
        return tally.count

    def _change(
        self,
        steps: Steps,
        progress: Progress | None,
        *,
        owes: bool = False,
        bulk: str = "",
    ) -> Count:
        tally, self._at = Tally(owes=owes, bulk=bulk), self._begun
        # Recording the owed ``REVOKED`` takes as long again.
        size = CHUNK // 2 if owes else CHUNK
        with telling_so_far(tally):
            for number, shard, page in self._pages():
                for first in range(0, len(page), size):
                    some = page[first : first + size]
                    done = 0
                    targets = [target_of_member(member) for member in some]
                    for made in steps_of(self.bulk, steps(shard, targets)):
                        # Set before progress or an error is reported, so no task is done twice.
                        done += len(made)
                        self._at = self._begun.behind(number, Position.of(some[done - 1]))
                        _note(self._services, tally, made)
                        report(progress, tally)
        return tally.count


def _note(services: Services, tally: Tally, made: Sequence[Change]) -> None:
    """Count a selection's changes, and notify of them.

    Raises:
        InvalidDueTime: a task would be due too late.
    """
    hooks = services.hooks
    for change in made:
        tally.changed(change.outcome)
        if change.due_ms is not None:
            hooks.rescheduled(change.task_id, change.due_ms)
    moved = [
        (change.task_id, change.due_ms, change.expires)
        for change in made
        if change.due_ms is not None
    ]
    warn_of_expiry(moved)
    removed = [change.cancelled for change in made if change.cancelled is not None]
    if removed:
        hooks.cancelled(removed)
    for change in made:
        if isinstance(change.error, InvalidDueTime):
            raise change.error
        tally.unreadable += change.error is not None
