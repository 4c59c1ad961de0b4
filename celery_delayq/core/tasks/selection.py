"""Many tasks at once: they are counted, read, cancelled, moved.

Picks --start--> pages of members --CHUNK at a time--> the scripts of one --> Tally --> Count
          in insertion order, up to the start; the cursor follows the last processed task

First a selection's cursor, and the counts of what became of its tasks. Then the ``Selection``, with
its operations, and ``select``, which makes one.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import wraps
from itertools import chain, islice, starmap
from secrets import token_hex
from typing import Any, TypeVar, cast

from celery.app.task import Task

from ..clock import DelayInput, TimeInput
from ..errors import DelayQError, InvalidDueTime, InvalidOption
from ..hooks import steps_of
from ..message.headers import warn_of_expiry
from ..services import HasServices, Services
from ..store import CHUNK, Change, Entry, Match, Position, Shard, State, target_of_member
from ..store.changes import Move, Removal, changed
from ..store.selection import Walk, peek, read, start
from ..store.values import Outcome
from ..threads import awaited, begun
from .changing import Direction, move_of
from .reading import OneOf, Picks, QueueNames
from .scheduled_task import ScheduledTask

_LAST_NUMBER = 2**47  # of insertion


@dataclass(frozen=True)
class _Cursor:
    """The position of a selection.

    Attributes:
        store: The store's name.
        digest: A digest of the selection's filters.
        starts: The last insertion number of each shard when the selection began.
        shard: The current shard.
        place: The position in that shard.
    """

    store: str
    digest: str
    starts: tuple[int, ...]
    shard: int = 0
    place: Position = field(default_factory=Position)

    def behind(self, shard: int, place: Position) -> _Cursor:
        """Return a cursor of the same selection, further on."""
        return replace(self, shard=shard, place=place)

    def place_in(self, shard: int) -> Position | None:
        """Return the position in a shard; ``None`` if that shard is finished."""
        if shard == self.shard:
            return self.place
        return Position() if shard > self.shard else None

    @property
    def text(self) -> str:
        facts = [self.store, self.digest, self.starts, self.shard, self.place.number]
        facts += [self.place.task_id] if self.place.task_id else []
        packed = json.dumps(facts, separators=(",", ":")).encode()
        return base64.urlsafe_b64encode(packed).decode().rstrip("=")

    @classmethod
    def read(cls, text: str, now: _Cursor) -> _Cursor:
        """Parse *text*, the cursor of an earlier selection; *now* is that of the new one.

        Raises:
            InvalidOption: it is not a cursor, or belongs to another selection or store.
        """
        made = _unpacked(text)
        if made is None:
            raise InvalidOption("cursor", text, "the cursor of a selection")
        if made.store != now.store:
            raise InvalidOption("cursor", text, "a cursor of this store")
        if made.digest != now.digest:
            raise InvalidOption("cursor", text, "a cursor of a selection by the same arguments")
        # A start in the future would include tasks that are scheduled later.
        fits = len(made.starts) == len(now.starts) and made.shard < len(now.starts)
        if not fits or any(
            start > last for start, last in zip(made.starts, now.starts, strict=True)
        ):
            raise InvalidOption("cursor", text, "the cursor of a selection")
        return made


def _unpacked(text: str) -> _Cursor | None:
    try:
        padded = text + "=" * (-len(text) % 4)
        facts = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
        store, digest, starts, shard, number, *task_id = facts
        words, numbers = [store, digest, *task_id], [*starts, shard]
        is_place = type(number) is int and -1 <= number <= _LAST_NUMBER and len(task_id) <= 1
        if not is_place or {type(word) for word in words} != {str}:
            return None
        if any(type(figure) is not int or not 0 <= figure <= _LAST_NUMBER for figure in numbers):
            return None
        return _Cursor(store, digest, tuple(starts), shard, Position(number, *task_id))
    except (TypeError, ValueError, AttributeError, RecursionError):
        return None


class Count(int):
    """The number of changed tasks, with details.

    Attributes:
        uncertain: How many of these may also have been delivered.
        behind: How many of these wait behind a task that holds their key; of ``run_now`` only.
        in_flight: How many other tasks were left unchanged because they were being published.
        unreadable: How many others were left unchanged because their records cannot be read.
        outstanding: For how many a scanner has yet to store the result ``REVOKED``.
        bulk: The name under which :meth:`DelayQ.undo_all` brings back those whose change is still
            kept; empty if nothing is kept for that.
    """

    uncertain: int
    behind: int
    in_flight: int
    unreadable: int
    outstanding: int
    bulk: str

    def __new__(  # noqa: PYI034 - Self is newer than Python 3.10
        cls,
        done: int,
        *,
        uncertain: int = 0,
        behind: int = 0,
        in_flight: int = 0,
        unreadable: int = 0,
        outstanding: int = 0,
        bulk: str = "",
    ) -> Count:
        made = super().__new__(cls, done)
        made.uncertain, made.behind = uncertain, behind
        made.in_flight, made.unreadable = in_flight, unreadable
        made.outstanding, made.bulk = outstanding, bulk
        return made

    @property
    def is_complete(self) -> bool:
        """Whether no matching task was left unchanged, was delivered before, or waits behind."""
        return not (self.uncertain or self.behind or self.in_flight or self.unreadable)


class Tally:
    """Counts step by step.

    Args:
        owes: Whether ``REVOKED`` must be stored for changed tasks.
        bulk: The name under which an undo finds them.

    Attributes:
        unreadable: How many were left unchanged because their records cannot be read.
    """

    def __init__(self, *, owes: bool = False, bulk: str = "") -> None:
        self._owes, self._bulk = owes, bulk
        self._done = self._uncertain = self._behind = self._in_flight = self.unreadable = 0

    @property
    def count(self) -> Count:
        return Count(
            self._done,
            uncertain=self._uncertain,
            behind=self._behind,
            in_flight=self._in_flight,
            unreadable=self.unreadable,
            outstanding=self._done if self._owes else 0,
            bulk=self._bulk,
        )

    def add(self, done: int) -> None:
        """Add to the number of changed tasks."""
        self._done += done

    def met(self, state: str, *, would: bool) -> None:
        """Count an entry of a dry run, in a *state* of ``peek.lua``."""
        self._done += would
        self._uncertain += would and state == "LAPSED"
        self._in_flight += state == "IN_FLIGHT"

    def changed(self, outcome: Outcome | None) -> None:
        """Count the outcome for one task."""
        self._done += outcome in (Outcome.DONE, Outcome.UNCERTAIN, Outcome.BEHIND)
        self._uncertain += outcome is Outcome.UNCERTAIN
        self._behind += outcome is Outcome.BEHIND
        self._in_flight += outcome is Outcome.IN_FLIGHT


Progress = Callable[[Count], object]


def report(progress: Progress | None, tally: Tally) -> None:
    """Call *progress*, if there is one, with the count so far."""
    if progress is not None:
        progress(tally.count)


@contextmanager
def telling_so_far(tally: Tally) -> Iterator[None]:
    """Give an error of this package the count so far."""
    try:
        yield
    except DelayQError as error:
        error.so_far = tally.count
        raise


_NO_REVISION = "none for a selection: name one task, by its id or key"
_NO_FILTER = (
    "tag=, task=, queue=, state=, after_due= or before_due=, which pick tasks, or all=True for "
    "every task"
)

Operation = TypeVar("Operation", bound=Callable[..., Any])


def of_many(operation: Operation) -> Operation:
    """Make an operation on a selection refuse ``if_revision``, which belongs to one task."""

    @wraps(operation)
    def call(*args: Any, **given: Any) -> Any:
        if "if_revision" in given:
            raise InvalidOption("if_revision", given["if_revision"], _NO_REVISION)
        return operation(*args, **given)

    return cast(Operation, call)


class Selection:
    """Tasks that match given filters; :meth:`DelayQ.select` makes one.

    It visits tasks in the order in which they were scheduled, up to the moment when the selection
    was made. A task that matches throughout is visited exactly once; a task that leaves or changes
    meanwhile, at most once; a task scheduled later, never. Each method starts at the first task, or
    at the cursor that the selection was given. None of them blocks Redis for long.

    Attributes:
        bulk: The name of its changes: one line of the history has it, and what it cancels or
            moves can be brought back under it, as far as that is kept. A selection that goes on
            from a cursor may get the name of the one before.
        cursor: The position of the last method or iteration, as text. You can store it, also in a
            URL, and pass it to ``select`` in any process.
    """

    def __init__(self, services: Services, picks: Picks) -> None:
        if picks.all is not True and not picks.has_filter:
            raise InvalidOption("all", picks.all, _NO_FILTER)
        self._services = services
        self._chosen, self._limit = picks.filter(services.timezone), picks.limit
        started = services.entries.each(start)
        starts = tuple(number for _, number in started)
        begun = _Cursor(started[0][0], self._chosen.digest, starts)
        self._begun = begun if picks.cursor is None else _Cursor.read(picks.cursor, begun)
        self._names = [name for name, _ in started]
        self._at = self._begun
        self.bulk = token_hex(6)

    @property
    def cursor(self) -> str:
        return self._at.text

    def __iter__(self) -> Iterator[ScheduledTask]:
        """Yield the tasks, read page by page."""
        self._at, queues = self._begun, QueueNames(self._services)
        if self._limit is None:
            parts = begun(self._met(self._pages_of(*walk)) for walk in self._walks())
        else:
            parts = [self._met(self._pages())]
        for number, member, entry in chain.from_iterable(parts):
            self._at = self._begun.behind(number, Position.of(member))
            if entry is not None:
                yield ScheduledTask.of(entry, self._services.app, queues.of(entry))

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
        return self._change(self._removal(), dry_run, progress)

    @of_many
    def remove(self, *, dry_run: bool = False, progress: Progress | None = None) -> Count:
        """Delete the dead and the unreadable tasks; otherwise like :meth:`cancel`."""
        return self._change(self._removal(only_dead=True), dry_run, progress)

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
        what = move_of(self._services.timezone, only, if_due, at=at, after=after, by=by)
        what = replace(what, chosen=self._chosen.text, undo=self._services.settings.undo)
        return self._change(what, dry_run, progress)

    @of_many
    def run_now(self, *, dry_run: bool = False, progress: Progress | None = None) -> Count:
        """Deliver them at once, even if they are paused; otherwise like :meth:`cancel`."""
        return self._change(Move(mode="now", chosen=self._chosen.text), dry_run, progress)

    @of_many
    def retry(self, *, dry_run: bool = False, progress: Progress | None = None) -> Count:
        """Try to deliver the dead tasks again; otherwise like :meth:`cancel`."""
        return self._change(Move(mode="retry", chosen=self._chosen.text), dry_run, progress)

    # For an event loop.
    acount = awaited(count, reads=True)
    acancel = awaited(cancel)
    areschedule = awaited(reschedule)
    arun_now = awaited(run_now)

    def _removal(self, *, only_dead: bool = False) -> Removal:
        return Removal(
            "scanner" if self._services.has_backend else "none",
            tells=bool(self._services.hooks.hears_messages()),
            only_dead=only_dead,
            undo=self._services.settings.undo,
            chosen=self._chosen.text,
        )

    def _pages(self) -> Iterator[tuple[int, Shard, list[bytes]]]:
        """Yield members that may match, from the start position: number, shard, page.

        With a limit, only members that match just now, and no more than that.
        """
        left = self._limit
        for number, shard, found in chain.from_iterable(starmap(self._pages_of, self._walks())):
            if left == 0:
                return
            page = found
            if left is not None:
                met = peek(shard, self._chosen, found)
                page = [match.member for match in islice(met, min(left, len(found)))]
                left -= len(page)
            if page:
                yield number, shard, page

    @staticmethod
    def _pages_of(
        number: int, walk: Walk, behind: Position
    ) -> Iterator[tuple[int, Shard, list[bytes]]]:
        for page in walk.pages(behind):
            yield number, walk.shard, page

    def _met(
        self, pages: Iterable[tuple[int, Shard, list[bytes]]]
    ) -> Iterator[tuple[int, bytes, Entry | None]]:
        """Yield the entries with their members; without one, the last member of a page."""
        for number, shard, page in pages:
            for member, entry in read(shard, self._chosen, page):
                yield number, member, entry
            if page:
                yield number, page[-1], None

    def _walks(self) -> Iterator[tuple[int, Walk, Position]]:
        """Yield the unfinished walks, each with its shard's number and where to continue."""
        for number, shard in enumerate(self._services.entries.shards):
            behind = self._begun.place_in(number)
            if behind is not None:
                name, last = self._names[number], self._begun.starts[number]
                yield number, Walk(shard, self._chosen, name, last), behind

    def _count(self, progress: Progress | None) -> Count:
        tally = Tally()
        with telling_so_far(tally):
            for _, walk, behind in self._walks():
                for found in walk.counts(behind):
                    tally.add(found)
                    report(progress, tally)
        return tally.count

    def _would_change(self, would: Callable[[Match], bool], progress: Progress | None) -> Count:
        tally, self._at = Tally(), self._begun
        with telling_so_far(tally):
            for number, shard, page in self._pages():
                for met in peek(shard, self._chosen, page):
                    tally.met(met.state, would=would(met))
                self._at = self._begun.behind(number, Position.of(page[-1]))
                report(progress, tally)
        return tally.count

    def _change(self, what: Removal | Move, dry_run: bool, progress: Progress | None) -> Count:
        if dry_run:
            return self._would_change(what.takes, progress)
        removal = what if isinstance(what, Removal) else Removal()
        tally = Tally(owes=removal.owes, bulk=self.bulk if what.undo else "")
        self._at = self._begun
        # Recording the owed ``REVOKED`` takes as long again.
        size = CHUNK // 2 if removal.owes else CHUNK
        with telling_so_far(tally):
            for number, shard, page in self._pages():
                for first in range(0, len(page), size):
                    some = page[first : first + size]
                    done = 0
                    targets = [target_of_member(member) for member in some]
                    for made in steps_of(self.bulk, changed(shard, what, targets)):
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
    if moved:
        warn_of_expiry(moved)
    removed = [change.cancelled for change in made if change.cancelled is not None]
    if removed:
        hooks.cancelled(removed)
    for change in made:
        if isinstance(change.error, InvalidDueTime):
            raise change.error
        tally.unreadable += change.error is not None


def select(
    delayq: HasServices,
    *,
    tag: OneOf[str] | None = None,
    task: OneOf[Task[..., Any] | str] | None = None,
    queue: OneOf[str] | None = None,
    state: OneOf[State | str] | None = None,
    after_due: TimeInput | None = None,
    before_due: TimeInput | None = None,
    all: bool = False,
    limit: int | None = None,
    cursor: str | None = None,
) -> Selection:
    """Select tasks to count, read or change; a task must match every given filter.

    Each of *tag*, *task*, *queue* and *state* takes a list too, of up to 100 values: a task then
    matches if it has any of them.

    Selecting by tag, or by one of the states ``DEAD`` and ``IN_FLIGHT``, reads only the matches.
    Any other filter scans all waiting tasks: a few seconds of Redis's time per million, in short
    steps.

    Args:
        tag: Tasks with this tag.
        task: Calls of this task; a task or its name.
        queue: Tasks sent with this queue.
        state: Tasks in this state.
        after_due: Tasks due at this time or later.
        before_due: Tasks due before this time.
        all: Every task; required if no filter is given.
        limit: The first so many of these tasks, whether the operation then changes them or not.
        cursor: Continue after the ``cursor`` of an earlier selection with the same filters.

    Raises:
        InvalidOption: no filter was given, or an invalid one; *limit* is not a whole number, or
            below 0; or *cursor* is invalid, or belongs to another selection or store.
        InvalidDueTime: not a time.
    """
    picks = Picks(tag, task, queue, state, after_due, before_due, all, limit, cursor)
    return Selection(delayq.services, picks)
