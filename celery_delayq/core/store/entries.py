"""The store as its callers see it: finds the shards for an id, a key or "all".

schedule                      each entry to its shard
change, find                  the shards that may have it, in turn, until one does
waiting, history, counts      every shard, results merged

Each step is documented in its module: ``schedule.py``, ``changes.py``, ``lookup.py``,
``listing.py``, ``counts.py``. Before ``Entries`` stand the choice of shards, and the step that
restores entries, of a dump or of a canvas that waits.

An entry with a key lies on the key's shard, so a key has one holder; one without lies on the shard
of its id. An id that this package makes is drawn so that both agree. With an id of the caller's, or
of Celery's, and a key, an entry can lie on another shard than its id's own.

A call by id therefore searches, on the id's shard first. The other way would be a pointer, from the
id's own shard to the key's. A search needs no second write and nothing to sweep, and it is never
stale. Its price is one more read a shard, and only for ids without an entry on their own shard. A
tombstone there does not end it: the task may wait again, with a key by now.
"""

from __future__ import annotations

import heapq
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial, wraps
from itertools import chain
from math import inf
from operator import attrgetter
from typing import Any, Protocol, TypeVar, cast
from urllib.parse import unquote_to_bytes

from .. import clock
from ..errors import (
    AlreadyScheduled,
    DelayQError,
    InFlight,
    StoreDiffers,
    StoreUnavailable,
    UnreadableRecord,
)
from ..hooks import actor
from ..settings import LONGEST_HISTORY
from ..threads import AT_ONCE, gather
from . import calls, changes, counts, listing, lookup
from .calls import Attempts, Shard, Shortfalls, Wanted
from .changes import AnyChange
from .counts import Counts, LiveScanner, Pause, QueueCount
from .keys import Target, named, shard_of
from .listing import Listing
from .lookup import LETTERS, Departure, HistoryEntry, Kept, Keyed, KeyHolder, What, added_up
from .membership import Membership, Registration
from .record import Entry, NewRecord, State
from .schedule import PLAIN, Addition, schedule
from .scripts import Scripts
from .values import (
    Cancelled,
    Change,
    NewEntry,
    Outcome,
    Receipt,
)

_GONE = (Outcome.NOT_FOUND, Outcome.HANDED_OVER)
_SECRET_BYTES = 32


class _Placed(Protocol):
    """An entry that is to be written."""

    @property
    def task_id(self) -> str: ...

    @property
    def record(self) -> NewRecord: ...


def shard_for(placed: _Placed, shards: int) -> int:
    """Return the shard of an entry."""
    return shard_of(placed.record.key or placed.task_id, shards)


def to_ask(shards: Sequence[Shard], who: Target) -> Sequence[Shard]:
    """Return the shards that may have an entry, the likeliest first."""
    own = shard_of(named(who), len(shards))
    return [shards[own]] if who[:1] == b"k" else [*shards[own:], *shards[:own]]


def _refused(
    shards: Sequence[Shard], what: Addition, new: Sequence[NewEntry]
) -> dict[int, DelayQError]:
    """Return by place the new entries whose id waits on its own shard, but their key has another.

    Each shard looks only at itself, and an id must not wait twice.
    """
    errors: dict[int, DelayQError] = {}
    shard_by_id: dict[str, int] = {}
    for place, entry in enumerate(new):
        own, here = shard_of(entry.task_id, len(shards)), shard_for(entry, len(shards))
        error: DelayQError | None = None
        if shard_by_id.setdefault(entry.task_id, here) != here:
            error = AlreadyScheduled(entry.task_id)
        elif own != here:
            error = _in_the_way(shards[own], what, entry.task_id)
        if error is not None:
            errors[place] = error
    return errors


def _in_the_way(shard: Shard, what: Addition, task_id: str) -> DelayQError | None:
    try:
        entry = _found(shard, what, task_id)
    except UnreadableRecord:
        return AlreadyScheduled(task_id)
    if entry is None:
        return None
    is_under_way = entry.state is State.IN_FLIGHT
    # The running task schedules itself anew, and this is the entry that delivered it.
    if what.supersede and (is_under_way or entry.facts.attempts):
        return None
    return (InFlight if is_under_way else AlreadyScheduled)(task_id)


def _found(shard: Shard, what: Addition, task_id: str) -> Entry | None:
    attempts = Attempts(what.until, iter(what.pauses))
    while True:
        try:
            return lookup.find(shard, task_id, what.until)
        except StoreUnavailable as error:
            # The call that schedules was not sent yet.
            attempts.wait_after(StoreUnavailable("schedule", error.why, False))


WAITING, REFUSED, DEAD = "waiting", "refused", "dead"


@dataclass(frozen=True)
class OldEntry:
    """An entry to restore.

    Attributes:
        task_id: The task's id.
        due_ms: Its due time.
        created_us: When it was scheduled; ``None``: now, even if its id has left the store.
        record: The record to write.
        place: ``waiting``, ``refused``, ``behind`` or ``dead``.
        when_ms: The next attempt of a refused entry; the time of death of a dead one; the due time
            of one behind another.
        attempts, refusals, uncertain, error, is_named: See :class:`Kept`.
    """

    task_id: str
    due_ms: int
    created_us: int | None
    record: NewRecord
    place: str = WAITING
    when_ms: int = 0
    attempts: int = 0
    refusals: int = 0
    uncertain: bool = False
    error: str = ""
    is_named: bool = True

    @property
    def claim(self) -> str:
        """Its attempts, as ``load.lua`` takes them; empty if there were none."""
        if not (self.attempts or self.refusals or self.uncertain):
            return ""
        return f"{self.attempts}:{self.refusals}:{int(self.uncertain)}"


def restore(entries: Entries, given: Sequence[OldEntry]) -> list[str | DelayQError]:
    """Restore entries, those of a shard in one step; the caller bounds how many.

    Returns:
        For each entry ``loaded``; ``here``, if it is in the store already; ``left``, if a task with
        its id has left the store since it was scheduled; or ``AlreadyScheduled``, if another entry
        has its id, or its key.

    Raises:
        StoreUnavailable: no answer came in time; entries of earlier shards may be loaded.
    """
    return entries.in_parts(given, _load)


def _load(shard: Shard, given: Sequence[OldEntry]) -> Iterator[str | DelayQError]:
    (text,) = shard.calls.call("load", entries=list(_arguments(given)))
    words = text.decode(errors="replace").split(" ")
    return (_answer(word, entry) for word, entry in zip(words, given, strict=True))


def _arguments(entries: Sequence[OldEntry]) -> Iterator[object]:
    sent: set[bytes] = set()
    for entry in entries:
        record, name = entry.record, entry.record.name
        template = b"" if name in sent else record.template
        if name is not None:
            sent.add(name)
        created = b"" if entry.created_us is None else b"%016d" % entry.created_us
        yield from (entry.task_id, entry.due_ms, created, record.header)
        yield from (record.labels + record.body, template, entry.place, entry.when_ms)
        yield from (entry.claim, entry.error, int(entry.is_named))


def _answer(word: str, entry: OldEntry) -> str | DelayQError:
    status, _, holder = word.partition(":")
    if status not in ("taken", "held"):
        return status
    return AlreadyScheduled(entry.task_id, unquote_to_bytes(holder).decode(errors="replace"))


Part = TypeVar("Part", bound=_Placed)
Answer = TypeVar("Answer")
Step = TypeVar("Step", bound=Callable[..., Any])


def _over_its_shards(step: Step) -> Step:
    """Repeat a step over the shards that the store has, if it refused this process's number."""

    @wraps(step)
    def taken(entries: Entries, *given: Any, **asked: Any) -> Any:
        try:
            return step(entries, *given, **asked)
        except StoreDiffers:
            now = entries.now()
            if now is entries:
                raise
            return step(now, *given, **asked)

    return cast("Step", taken)


class Entries:
    """The store as its callers see it.

    Args:
        shards: The scripts of each shard, by number.
        membership: What this process says of its app and broker.
        meeting_place: The scripts of the keys common to all numbers of shards; ``None`` if they are
            those of the only shard.
        now: Returns the entries over the shards that the store is known to have; by default, these.

    Attributes:
        key_sets: The scripts of each set of keys: the meeting place, if it has its own; the shards.
        unasked_shards: Each shard, before a check.
    """

    def __init__(
        self,
        shards: Sequence[Scripts],
        membership: Membership,
        meeting_place: Scripts | None = None,
        now: Callable[[], Entries] | None = None,
    ) -> None:
        self.now = now or (lambda: self)
        apart = [] if meeting_place is None else [meeting_place]
        self.key_sets = [*apart, *shards]
        meeting = next((Registration(scripts, membership) for scripts in apart), None)
        self.unasked_shards = [
            Shard(shard, membership, number, meeting_place=meeting)
            for number, shard in enumerate(shards)
        ]
        self._has_looked = False
        self._shortfalls = Shortfalls()

    @_over_its_shards
    def join(self, until: float | None = None) -> None:
        """Check that this process may use the store; each shard's first call does so by itself.

        Args:
            until: When to give up, by the monotonic clock.

        Raises:
            StoreDiffers: other processes use it with different settings.
        """
        self.unasked_shards[0].calls.join(until)

    @_over_its_shards
    def check_membership(self) -> str:
        """Check that this process may read the store, without changing anything.

        Returns:
            The scanners' broker, if it is not this process's; else empty.

        Raises:
            StoreDiffers: other processes use it with different settings.
        """
        broker = self.unasked_shards[0].check_membership()
        self._has_looked = True
        return broker

    @property
    def shards(self) -> Sequence[Shard]:
        """Each shard, to read. Checks first: with another layout all would look empty."""
        if self._has_looked:
            return self.unasked_shards
        self.check_membership()
        return self.now().unasked_shards

    @_over_its_shards
    def each(self, step: Callable[[Shard], Answer]) -> list[Answer]:
        """Take a step that reads in every shard."""
        if AT_ONCE.get():
            return gather(*(partial(step, shard) for shard in self.shards))
        return [step(shard) for shard in self.shards]

    def in_parts(
        self, given: Sequence[Part], step: Callable[[Shard, list[Part]], Iterable[Answer]]
    ) -> list[Answer]:
        """Run a step that changes the store in each shard, with its part of *given*.

        Returns:
            The answers, in the order of *given*.

        Raises:
            StoreUnavailable: a step raised it; other shards may have been changed before.
        """
        shards, answers = self.unasked_shards, dict[int, Answer]()
        parts: defaultdict[int, list[int]] = defaultdict(list)
        for place, entry in enumerate(given):
            parts[shard_for(entry, len(shards))].append(place)
        for number, places in parts.items():
            some_answers = step(shards[number], [given[place] for place in places])
            answers.update(zip(places, some_answers, strict=True))
        return [answers[place] for place in range(len(given))]

    @_over_its_shards
    def schedule(
        self, new: Sequence[NewEntry], what: Addition = PLAIN
    ) -> list[Receipt | DelayQError]:
        """Schedule entries, in one step per shard; see :func:`schedule.schedule`."""
        shards = self.unasked_shards
        # All shards together have the time of one call.
        end = clock.monotonic() + shards[0].scripts.settings.timeout
        what = replace(what, until=min(what.until, end))
        if len(shards) == 1:
            return schedule(shards[0], what, new)
        refusals = _refused(shards, what, new)
        rest = [entry for place, entry in enumerate(new) if place not in refusals]
        answers = iter(self.in_parts(rest, lambda shard, some: schedule(shard, what, some)))
        return [refusals.get(place) or next(answers) for place in range(len(new))]

    def wait_for_replicas(self, receipts: Sequence[Receipt], wanted: Wanted) -> int:
        """Wait until replicas have the entries that :meth:`schedule` just wrote; never raises.

        Returns:
            How many replicas have them, as :func:`calls.wait`; of several shards, the fewest.
        """
        until = clock.monotonic() + wanted.seconds
        parts: defaultdict[int, list[Receipt]] = defaultdict(list)
        for receipt in receipts:
            parts[receipt.shard].append(receipt)
        return min(
            calls.wait(self.unasked_shards[number], wanted, some, until, self._shortfalls)
            for number, some in parts.items()
        )

    @_over_its_shards
    def change(self, who: Target, what: AnyChange) -> tuple[Outcome, Change]:
        """Remove, move or rewrite an entry; see :func:`changes.one`.

        Returns:
            The answer of the first shard that has it. If none has it: ``HANDED_OVER``, if one
            knows of that.
        """
        # All shards together have the time of one call.
        timeout = self.unasked_shards[0].scripts.settings.timeout
        what = replace(what, until=clock.monotonic() + timeout)
        best: tuple[Outcome, Change] | None = None
        for shard in to_ask(self.unasked_shards, who):
            answer = changes.one(shard, what, who)
            if answer[0] not in _GONE:
                return answer
            if best is None or answer[0] is Outcome.HANDED_OVER:
                best = answer
        assert best is not None  # noqa: S101 - there is at least one shard
        return best

    def forgo(self, task_ids: Sequence[str]) -> None:
        """Note that ids were sent to the workers, so that no undo brings their tasks back."""
        for shard in self.unasked_shards:
            shard.scripts.call("forgo", ids=task_ids)

    def mark_stored(self, cancelled: Cancelled) -> bool:
        """Note that ``REVOKED`` was stored for a task; return whether its id was scheduled anew."""
        return bool(changes.mark_stored(self.unasked_shards[cancelled.shard], [cancelled]))

    @_over_its_shards
    def hold(self, words: Sequence[tuple[str, str, str, int, int]], until: float) -> None:
        """Report of runs that hold keys: the words that ``hold.lua`` takes."""
        parts: defaultdict[int, list[str | int]] = defaultdict(list)
        for word in words:
            parts[shard_of(word[1], len(self.unasked_shards))] += word
        for number, some in parts.items():
            self.unasked_shards[number].scripts.call("hold", until=until, words=some)

    @_over_its_shards
    def free(self, key: str, seen: str = "") -> tuple[Outcome, str]:
        """Free a key that an entry which has left still holds; see :func:`lookup.free_key`."""
        return lookup.free_key(self._of_key(key, self.unasked_shards), key, seen)

    @_over_its_shards
    def holder(self, key: str) -> KeyHolder | None:
        """Return the holder of a key, or ``None``."""
        return lookup.holder_of(self._of_key(key, self.shards), key)

    def _of_key(self, key: str, shards: Sequence[Shard]) -> Shard:
        return shards[shard_of(key, len(shards))]

    @_over_its_shards
    def pause(self, lane: bytes, name: str, *, late: bool = False) -> None:
        """Park the tasks of a lane as they fall due, from when this returns.

        Args:
            lane: From :func:`lane_for`.
            name: The name of the queue or task, for display.
            late: Whether the time parked counts as lateness.
        """
        for shard in self.unasked_shards:
            shard.calls.call("pause", lane=lane, called=name, late=int(late))

    @_over_its_shards
    def resume(self, lane: bytes, rate: float | None = None) -> bool:
        """Let parked entries of a lane come back, *rate* a second; return whether it was paused.

        Shards share the rate.
        """
        shards = self.unasked_shards
        part = (rate or 0) / len(shards)
        # Ask each shard, whatever the first ones answer.
        answers = [shard.calls.call("resume", lane=lane, rate=part) for shard in shards]
        return [b"done"] in answers

    @_over_its_shards
    def find(self, who: Target, until: float | None = None) -> Entry | None:
        """Return the entry, or ``None``; see :func:`lookup.find`."""
        finds = [partial(lookup.find, shard, who, until) for shard in to_ask(self.shards, who)]
        found = gather(*finds) if AT_ONCE.get() else (find() for find in finds)
        return next(filter(None, found), None)

    @_over_its_shards
    def state(self, who: Target) -> State | None:
        """Return the state of an entry, or ``None``; see :func:`lookup.state`."""
        found = (lookup.state(shard, who) for shard in to_ask(self.shards, who))
        return next(filter(None, found), None)

    @_over_its_shards
    def departure(self, who: Target) -> Departure | None:
        """Return how and when an entry left; see :func:`lookup.departure`."""
        return lookup.departure(to_ask(self.shards, who), who)

    @_over_its_shards
    def keyed(self, keys: Sequence[str]) -> list[Keyed]:
        """Return what has each of some unique keys; see :func:`lookup.keyed`."""
        shards, places = self.shards, defaultdict[int, list[int]](list)
        for place, key in enumerate(keys):
            places[shard_of(key, len(shards))].append(place)
        found = dict[int, Keyed]()
        for number, some in places.items():
            answers = lookup.keyed(shards[number], [keys[place] for place in some])
            found.update(zip(some, answers, strict=True))
        return [found[place] for place in range(len(keys))]

    @_over_its_shards
    def note_reconciled(self, tag: str, line: str, most: int) -> None:
        """Note what a reconcile of a tag found, of *most* tags."""
        self.unasked_shards[0].scripts.call("reconciled", tag=tag, line=line, most=most)

    def handed_over_ms(self, who: Target) -> int | None:
        """Return when an entry was delivered; ``None`` if it was not, or its tombstone is gone."""
        left = self.departure(who)
        return left.when_ms if left and left.how == "handed_over" else None

    def cancelled_ms_ago(self, who: Target) -> int | None:
        """Return how long ago an entry was cancelled, if no copy can have been delivered."""
        left = self.departure(who)
        return left.now_ms - left.when_ms if left and left.how == "cancelled" else None

    def waiting(self, what: Listing) -> Iterator[Entry]:
        """Yield waiting entries in due order; see :func:`listing.waiting`."""

        def step(shards: Sequence[Shard]) -> Iterator[Entry]:
            return listing.waiting(shards, what)

        return self._through(step, step(self.shards))

    def _through(
        self, step: Callable[[Sequence[Shard]], Iterator[Entry]], found: Iterator[Entry]
    ) -> Iterator[Entry]:
        try:
            first = next(found, None)
        except StoreDiffers:
            now = self.now()
            if now is self:
                raise
            found = step(now.shards)
            first = next(found, None)
        if first is not None:
            yield first
            yield from found

    @_over_its_shards
    def note(self, what: What, lane: str) -> None:
        """Add an event of a lane to the history, if the store has one.

        Args:
            what: The kind of the event.
            lane: ``q`` or ``t``, and the name of a queue or task; empty for everything.
        """
        letter = LETTERS[what].decode()
        self.shards[0].scripts.call("note", what=letter, lane=lane, who=actor())

    @_over_its_shards
    def history(self, events: int = 0, changes: int = 0, parts: int = 0) -> list[HistoryEntry]:
        """Return the latest of the history, newest first.

        Args:
            events: The most events of entries that were changed by themselves.
            changes: The most changes of many, and pauses.
            parts: The most events of entries that a change of many changed.
        """
        # Each shard has the entries of a change that lie there: only all lines add up.
        read = LONGEST_HISTORY if changes else 0
        found = self.each(lambda shard: lookup.history(shard, events, read, parts))
        kept = max(most for most, _ in found)
        when, lists = attrgetter("when_ms"), []
        for number, most in enumerate((events, changes, parts)):
            joint = [event for _, of_shard in found for event in of_shard[number]]
            joint = added_up(joint) if number == 1 else joint
            lists.append(sorted(joint, key=when, reverse=True)[: min(most, kept)])
        return list(heapq.merge(*lists, key=when, reverse=True))

    @_over_its_shards
    def secret(self) -> tuple[int, bytes]:
        """Return Redis's time, ms, and a secret of the store: its first process drew it.

        It signs what a process gives away and gets back. No dump, view or message shows it. A store
        that was emptied or resharded has another one.
        """
        shard, fresh = self.shards[0], os.urandom(_SECRET_BYTES).hex()
        found = shard.scripts.call("secret", fresh=fresh)
        if not found.secret:
            shard.calls.join()
            found = shard.scripts.call("secret", fresh=fresh)
        return found.now // 1000, found.secret

    @_over_its_shards
    def kept(self, task_id: str) -> Kept | None:
        """Return an entry that was cancelled, if an undo of it is kept."""
        found = filter(None, self.each(lambda shard: lookup.kept(shard, task_id)))
        return max(found, key=attrgetter("when_ms"), default=None)

    @_over_its_shards
    def undoable(self, bulk: str) -> tuple[int, int | None]:
        """Return of how many entries of a bulk an undo is kept, and how many are not back.

        The second number is ``None`` if no cancel of that name is known.
        """
        found = [lookup.undoable(shard, bulk) for shard in self.shards]
        known = [left for _, left in found if left is not None]
        return sum(kept for kept, _ in found), sum(known) if known else None

    @_over_its_shards
    def pauses(self) -> list[Pause]:
        """Return the lanes that are paused or coming back."""
        return counts.union_of(self.each(counts.pauses_in))

    @_over_its_shards
    def counts(self) -> Counts:
        """Return all counts; those of one shard are of one instant."""
        return counts.sum_of(self.each(counts.counts_in))

    @_over_its_shards
    def scanners(self) -> list[LiveScanner]:
        """Return the live scanners by name; each serves every shard."""
        found: dict[str, LiveScanner] = {}
        for scanner in chain.from_iterable(self.each(counts.scanners_in)):
            before = found.setdefault(scanner.name, scanner)
            found[scanner.name] = max(before, scanner, key=attrgetter("seen_ms"))
        return sorted(found.values(), key=attrgetter("name"))

    @_over_its_shards
    def tallies(self, most: int, seconds: float = inf) -> tuple[list[QueueCount], bool]:
        """Count each shard's waiting entries by queue; see :func:`counts.tallies_in`."""
        part, until = max(1, most // len(self.unasked_shards)), clock.monotonic() + seconds
        found = self.each(lambda shard: counts.tallies_in(shard, part, until))
        return [entry for some, _ in found for entry in some], all(is_all for _, is_all in found)
