"""Many tasks at once: what a selection is, and what can be done to it.

select --start--> pages of members --CHUNK at a time--> the scripts of one --> Count
           the order of insertion up to the start; the cursor stands behind what was dealt with
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ..clock import DelayInput, TimeInput, When, due_in_ms, one_of
from ..errors import DelayQError, InvalidDueTime
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
    selection_scan,
    target_of_member,
)
from .count import Count, Tally
from .cursor import Cursor
from .moves import Direction, conditions, warn_of_expiry
from .queues import QueueNames
from .releasing import STEP, Release, Released, ReleaseTally, refuse_canvases
from .scheduled_task import ScheduledTask

Progress = Callable[[Count], object]
Steps = Callable[[Shard, list[bytes]], Iterator[list[Change]]]

# States that a dry run counts, as `peek.lua` says them.
WAITING = {"SCHEDULED", "PAUSED", "DEAD", "LAPSED"}


class Selection:
    """Tasks that are picked by what they have in common; :meth:`DelayQ.select` makes one.

    It goes in the order in which they were scheduled, up to its start, which is when it was made.
    What it means all the while is met exactly once; what is scheduled later, never; what leaves or
    is changed meanwhile, at most once. Every method begins where the selection does, be it at the
    first task or at the cursor it was given, and none of them holds Redis for long.

    Attributes:
        cursor: Text that names how far the last method, or iteration, has come. It can be stored,
            in a URL as well, and given to ``select`` again, in any process.
    """

    def __init__(self, services: Services, chosen: Filter, cursor: str | None = None) -> None:
        self._services = services
        self._chosen = chosen
        started = [selection_scan.start(one) for one in services.entries.links]
        begun = Cursor(started[0][0], chosen.digest, tuple(seq for _, seq in started))
        self._begun = begun if cursor is None else Cursor.read(cursor, begun)
        self._names = [name for name, _ in started]
        self._at = self._begun

    @property
    def cursor(self) -> str:
        return self._at.text

    def __iter__(self) -> Iterator[ScheduledTask]:
        """The tasks, read page by page."""
        self._at, queues = self._begun, QueueNames(self._services)
        for shard, link, page in self._pages():
            for member, entry in selection_scan.read(link, self._chosen, page):
                self._at = self._begun.behind(shard, Position.of(member))
                yield ScheduledTask.of(entry, self._services.app, queues.of(entry))
            self._at = self._begun.behind(shard, Position.of(page[-1]))

    def count(self, *, progress: Progress | None = None) -> Count:
        """How many tasks it means; nothing is changed."""
        if self._chosen.is_found_by_way:
            return self._count(progress)
        return self._would_change(lambda _: True, progress)

    def cancel(self, *, dry_run: bool = False, progress: Progress | None = None) -> Count:
        """Cancel them; their results become ``REVOKED``, which scanners store.

        Args:
            dry_run: Only count; then no result is ``uncertain`` but of those whose lease is over.
            progress: Called after each step with the count so far; :attr:`cursor` stands behind
                what that counts, and can be stored.

        Raises:
            StoreError: Redis cannot be reached, or refuses a step. The error's ``so_far`` is the
                count of what was done, and :attr:`cursor` stands behind that.
        """
        return self._remove(WAITING, dry_run, progress)

    def remove(self, *, dry_run: bool = False, progress: Progress | None = None) -> Count:
        """Delete the dead and the unreadable ones; the rest as :meth:`cancel`."""
        return self._remove({"DEAD", "UNREADABLE"}, dry_run, progress, remove=True)

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
        """Give them another due time; see :meth:`DelayQ.reschedule`, and :meth:`cancel`.

        If the process is killed after a step and before *progress*, who goes on from the stored
        cursor repeats that step: with *by* it moves those tasks twice, with *at* or *if_due* not.

        Raises:
            InvalidDueTime: not a time, or past 2255-06-05. Where *by* leads there, the error's
                ``so_far`` counts those that were moved before.
        """
        when = one_of(self._services.timezone, at=at, after=after, by=by)
        asked = conditions(self._services.timezone, only, if_due)
        if dry_run:
            return self._would_change(
                lambda met: met.state in WAITING and _moves(met, when, asked), progress
            )
        return self._change(_moving(self._chosen, when, asked), progress)

    def run_now(self, *, dry_run: bool = False, progress: Progress | None = None) -> Count:
        """Deliver them at once, even if they are paused; the rest as :meth:`cancel`."""
        return self._go("now", WAITING, dry_run, progress)

    def retry(self, *, dry_run: bool = False, progress: Progress | None = None) -> Count:
        """Try to deliver the dead ones again; the rest as :meth:`cancel`."""
        return self._go("retry", {"DEAD"}, dry_run, progress)

    def release(
        self, *, canvas: bool = False, dry_run: bool = False, progress: Progress | None = None
    ) -> Released:
        """Send them at once, as plain messages of Celery whose ``eta`` is their due time.

        Each goes to its queue now, also through a pause, and a worker that takes it waits until
        then, with or without this package. A relative ``expires`` counts on from the due time, and
        a grace becomes an ``expires``. From then on they can be cancelled as Celery's can.

        Where no scanner is alive, :meth:`DelayQ.hand_over` sends what was released. What stays can
        be released by another call: dead tasks, and what is being published.

        Args:
            canvas: Canvases as well; only a worker with this package can run one.
            dry_run: Only count.
            progress: Called after each step with the count so far.

        Raises:
            InvalidOption: there are canvases, and *canvas* is false; nothing was sent.
            StoreError: as for :meth:`cancel`. ``StoreFull``, one of these: the messages grow.
        """
        releases, seen = Release(self._services, self._chosen), ReleaseTally()
        with _telling_so_far(seen):
            for _, link, page in self._pages():
                releases.count_page(link, page, seen)
                _report(progress if dry_run else None, seen)
        if not canvas:
            refuse_canvases(seen.canvases)
        return seen.count if dry_run else self._release(releases, progress)

    def _release(self, releases: Release, progress: Progress | None) -> Released:
        tally, self._at = ReleaseTally(), self._begun
        with _telling_so_far(tally):
            for shard, link, page in self._pages():
                for first in range(0, len(page), STEP):
                    some = page[first : first + STEP]
                    releases.step(link, some, tally)
                    self._at = self._begun.behind(shard, Position.of(some[-1]))
                    _report(progress, tally)
        return tally.count

    def _go(self, mode: str, states: set[str], dry_run: bool, progress: Progress | None) -> Count:
        if dry_run:
            return self._would_change(lambda met: met.state in states, progress)
        return self._change(_moving(self._chosen, NOW, {"mode": mode}), progress)

    def _remove(
        self, states: set[str], dry_run: bool, progress: Progress | None, *, remove: bool = False
    ) -> Count:
        if dry_run:
            return self._would_change(lambda met: met.state in states, progress)
        owes = self._services.has_backend

        def steps(link: Shard, targets: list[bytes]) -> Iterator[list[Change]]:
            tells = bool(self._services.hooks.hears_messages())
            return changes.cancel(
                link, targets, owes=2 * owes, tells=tells, remove=remove, chosen=self._chosen.text
            )

        return self._change(steps, progress, owes=owes)

    def _pages(self) -> Iterator[tuple[int, Shard, list[bytes]]]:
        """The members that may be meant, from where it begins: shard, link, page."""
        for shard, link, behind in self._shards():
            name, start = self._names[shard], self._begun.starts[shard]
            for page in selection_scan.pages(link, self._chosen, name, start, behind):
                yield shard, link, page

    def _shards(self) -> Iterator[tuple[int, Shard, Position]]:
        """Those that it is not through with, and behind what."""
        for shard, link in enumerate(self._services.entries.links_to_change):
            behind = self._begun.place_in(shard)
            if behind is not None:
                yield shard, link, behind

    def _count(self, progress: Progress | None) -> Count:
        tally = Tally()
        with _telling_so_far(tally):
            for shard, link, behind in self._shards():
                name, start = self._names[shard], self._begun.starts[shard]
                for found in selection_scan.counts(link, self._chosen, name, start, behind):
                    tally.add(found)
                    _report(progress, tally)
        return tally.count

    def _would_change(self, would: Callable[[Match], bool], progress: Progress | None) -> Count:
        tally = Tally()
        with _telling_so_far(tally):
            for _, link, page in self._pages():
                for met in selection_scan.peek(link, self._chosen, page):
                    tally.met(met.state, would=would(met))
                _report(progress, tally)
        return tally.count

    def _change(self, steps: Steps, progress: Progress | None, *, owes: bool = False) -> Count:
        tally, self._at = Tally(owes=owes), self._begun
        # What is owed is written as well, which takes as long again.
        size = CHUNK // 2 if owes else CHUNK
        with _telling_so_far(tally):
            for shard, link, page in self._pages():
                for first in range(0, len(page), size):
                    some = page[first : first + size]
                    done = 0
                    for made in steps(link, [target_of_member(one) for one in some]):
                        # Set before progress or an error is reported: nothing is then done twice.
                        done += len(made)
                        self._at = self._begun.behind(shard, Position.of(some[done - 1]))
                        self._note(tally, made)
                        _report(progress, tally)
        return tally.count

    def _note(self, tally: Tally, made: Sequence[Change]) -> None:
        hooks = self._services.hooks
        for change in made:
            tally.changed(change.outcome)
            if change.due_ms is not None:
                hooks.rescheduled(change.task_id, change.due_ms)
        moved = [(one.task_id, one.due_ms, one.expires) for one in made if one.due_ms is not None]
        warn_of_expiry(self._services.timezone, moved)
        removed = [one.cancelled for one in made if one.cancelled is not None]
        if removed:
            hooks.cancelled(removed)
        for change in made:
            # What cannot be read stays as it is, as it would by itself.
            if isinstance(change.error, InvalidDueTime):
                raise change.error


def _moving(chosen: Filter, when: When, how: dict[str, Any]) -> Steps:
    def steps(link: Shard, targets: list[bytes]) -> Iterator[list[Change]]:
        return changes.reschedule(link, targets, when, chosen=chosen.text, **how)

    return steps


def _moves(met: Match, when: When, asked: dict[str, Any]) -> bool:
    """Whether an entry would be moved, as ``reschedule.lua`` decides it."""
    if asked["if_due_ms"] not in (None, met.due_ms):
        return False
    if when.mode == "by":
        new_ms = max(0, met.due_ms + when.ms)
    else:
        new_ms = due_in_ms(when.us + (met.now_us if when.mode == "after" else 0), met.now_us)
    if asked["only"] == "earlier":
        return new_ms < met.due_ms
    return asked["only"] != "later" or new_ms > met.due_ms


def _report(progress: Progress | None, tally: Tally) -> None:
    if progress is not None:
        progress(tally.count)


@contextmanager
def _telling_so_far(tally: Tally) -> Iterator[None]:
    try:
        yield
    except DelayQError as error:
        error.so_far = tally.count
        raise
