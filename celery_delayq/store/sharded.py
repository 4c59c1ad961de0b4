"""The caller's steps over all shards: an id has one of them, a listing or a count has all.

schedule, cancel, reschedule, find --shard_of(id)--> one shard's Entries
waiting, counts, history, check ------------------>  each shard's, put together
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby, islice
from operator import attrgetter
from typing import Any

from .. import clock
from ..clock import When
from ..errors import DelayQError, InvalidOption
from .entries import Entries
from .happened import Happened
from .ids import Target, named
from .keys import shard_of
from .listing import CURSOR, MAX_SIZE, Cursor, readable
from .loads import OldEntry
from .misfits import Finding, Repaired
from .outcome import Outcome
from .overview import Counts, Pause, Scanner, sum_of, union_of
from .queues import Tally
from .record import NewRecord, Record
from .replicas import Wanted
from .values import Cancelled, Change, Entry, NewEntry, Receipt, State


class ShardedEntries:
    """What callers do with the store; methods are those of :class:`Entries`.

    Args:
        shards: The entries of each shard, in the order of their numbers.
    """

    def __init__(self, shards: Sequence[Entries]) -> None:
        self._shards = shards
        for shard in shards[1:]:
            shard.replicas.shortfalls = shards[0].replicas.shortfalls
        self._is_joined = len(shards) == 1
        self._has_looked = False

    def _of(self, who: Target) -> Entries:
        # A key can be given where there is one shard only.
        return self._shards[shard_of(named(who), len(self._shards))]

    def join(self, until: float | None = None) -> None:
        """As :meth:`Entries.join`, where all processes meet."""
        for shard in self._shards:
            if shard.keys.is_meeting_place:
                shard.join(until)

    def _joined(self) -> None:
        """Ask first where processes that differ in the number of shards meet."""
        if not self._is_joined:
            self.join()
            self._is_joined = True

    def _looked(self) -> None:
        """Ask once, before anything is read: in another layout all would seem to be empty."""
        if not self._has_looked:
            self.look()

    def look(self) -> str:
        """As :meth:`Entries.look`, where all processes meet."""
        found = [shard.look() for shard in self._shards if shard.keys.is_meeting_place]
        self._has_looked = True
        return next(filter(None, found), "")

    def schedule(self, new: Sequence[NewEntry], **options: Any) -> list[Receipt | DelayQError]:
        """As :meth:`Entries.schedule`, in one step a shard. Returns the answers in order of *new*.

        Raises:
            StoreUnavailable: as there; what went to another shard before may be scheduled.
        """
        self._joined()
        parts: defaultdict[int, list[int]] = defaultdict(list)
        for place, one in enumerate(new):
            parts[shard_of(one.task_id, len(self._shards))].append(place)
        answers: dict[int, Receipt | DelayQError] = {}
        for shard, places in parts.items():
            told = self._shards[shard].schedule([new[place] for place in places], **options)
            answers.update(zip(places, told, strict=True))
        return [answers[place] for place in range(len(new))]

    def wait_for_replicas(self, receipts: Sequence[Receipt], wanted: Wanted) -> int:
        """Wait until replicas have what :meth:`schedule` has just answered; it raises nothing.

        Returns:
            How many have it, as :meth:`Replicas.wait`; of several shards, the fewest.
        """
        until = clock.monotonic() + wanted.seconds
        parts: defaultdict[int, list[Receipt]] = defaultdict(list)
        for one in receipts:
            parts[shard_of(one.task_id, len(self._shards))].append(one)
        return min(
            self._shards[shard].replicas.wait(
                wanted, {one.operation for one in some}, len(some), until
            )
            for shard, some in parts.items()
        )

    def load(self, entries: Sequence[OldEntry]) -> list[str | DelayQError]:
        """As :meth:`Loads.load`, in one step a shard. Returns the answers in order of *entries*.

        Raises:
            StoreUnavailable: as there; what went to another shard before may be loaded.
        """
        self._joined()
        parts: defaultdict[int, list[int]] = defaultdict(list)
        for place, one in enumerate(entries):
            parts[shard_of(one.task_id, len(self._shards))].append(place)
        answers: dict[int, str | DelayQError] = {}
        for shard, places in parts.items():
            told = self._shards[shard].loads.load([entries[place] for place in places])
            answers.update(zip(places, told, strict=True))
        return [answers[place] for place in range(len(entries))]

    def cancel(self, who: Target) -> tuple[Outcome, bytes | None]:
        self._joined()
        return self._of(who).cancel(who)

    def cancel_owing(self, who: Target, **options: Any) -> tuple[Outcome, Cancelled | None]:
        self._joined()
        return self._of(who).cancel_owing(who, **options)

    def settle(self, cancelled: Cancelled) -> None:
        self._of(cancelled.task_id).settle(cancelled)

    def reschedule(self, who: Target, when: When, **conditions: Any) -> tuple[Outcome, int | None]:
        self._joined()
        return self._of(who).reschedule(who, when, **conditions)

    def move(self, who: Target, when: When, **conditions: Any) -> tuple[Outcome, Change]:
        self._joined()
        return self._of(who).move(who, when, **conditions)

    @property
    def each(self) -> Sequence[Entries]:
        """Each shard's, for what goes through them one after the other."""
        self._joined()
        self._looked()
        return self._shards

    def edit(self, who: Target, seen: Record | None, new: NewRecord) -> Outcome:
        self._joined()
        return self._of(who).edit(who, seen, new)

    def find(self, who: Target) -> Entry | None:
        self._looked()
        return self._of(who).find(who)

    def state(self, who: Target) -> State | None:
        self._looked()
        return self._of(who).state(who)

    def handed_over_ms(self, who: Target) -> int | None:
        self._looked()
        return self._of(who).handed_over_ms(who)

    def cancelled_ms_ago(self, who: Target) -> int | None:
        self._looked()
        return self._of(who).cancelled_ms_ago(who)

    def waiting(
        self,
        earliest_ms: int,
        end_ms: int,
        *,
        cursor: str | None = None,
        size: int = MAX_SIZE,
    ) -> Iterator[Entry]:
        """As :meth:`Entries.waiting`; equal due times of two shards in no promised order.

        Args:
            earliest_ms: Only what is due at this time or later.
            end_ms: Only what is due before this.
            cursor: Go on behind the entry that has it.
            size: How many are wanted, if that is known.

        Raises:
            InvalidOption: *cursor* is none of this store.
        """
        self._looked()
        behind = None if cursor is None else self._cursor(cursor)
        rows = (
            shard.rows(number, earliest_ms, end_ms, behind=behind, size=size)
            for number, shard in enumerate(self._shards)
        )
        return readable(heapq.merge(*rows, key=attrgetter("place")))

    def _cursor(self, text: str) -> Cursor:
        cursor = Cursor.read(text)
        in_range = cursor.shard < len(self._shards)
        if not in_range or self._shards[cursor.shard].store() != cursor.store:
            raise InvalidOption("cursor", text, CURSOR)
        return cursor

    def history(self, limit: int) -> list[Happened]:
        """As :meth:`Entries.history`, of all shards together."""
        self._looked()
        events = (shard.history(limit) for shard in self._shards)
        newest_first = heapq.merge(*events, key=attrgetter("when_ms"), reverse=True)
        return list(islice(newest_first, limit))

    def pause(self, lane: bytes, name: str, *, late: bool = False) -> None:
        """As :meth:`Entries.pause`, in each shard."""
        self._joined()
        for shard in self._shards:
            shard.pause(lane, name, late=late)

    def resume(self, lane: bytes, rate: float | None = None) -> bool:
        """As :meth:`Entries.resume`, in each shard; they share the rate."""
        self._joined()
        part = rate and rate / len(self._shards)
        # Each of them, whatever the first ones say.
        return max([shard.resume(lane, part) for shard in self._shards])

    def pauses(self) -> list[Pause]:
        """As :meth:`Entries.pauses`, all shards' together."""
        self._looked()
        return union_of(shard.pauses() for shard in self._shards)

    def check(self) -> Iterator[Finding]:
        """As :meth:`Entries.check`, shard by shard."""
        self._looked()
        for number, shard in enumerate(self._shards):
            for finding in shard.check():
                yield replace(finding, shard=number)

    def repair(self, findings: Iterable[Finding]) -> Iterator[list[Repaired]]:
        """As :meth:`Entries.repair`; those of a shard that follow each other go together.

        Raises:
            InvalidOption: one is of a shard that is not there.
        """
        self._looked()
        for number, some in groupby(findings, attrgetter("shard")):
            if not 0 <= number < len(self._shards):
                raise InvalidOption("finding", number, "one that this store's check gave")
            yield from self._shards[number].repair(some)

    def counts(self) -> Counts:
        """All counts; those of one shard at one instant. A scanner serves every shard."""
        self._looked()
        return sum_of([shard.counts() for shard in self._shards])

    def scanners(self) -> list[Scanner]:
        """The scanners that are alive, by name; each serves every shard."""
        self._looked()
        found: dict[str, Scanner] = {}
        for shard in self._shards:
            for one in shard.scanners():
                before = found.setdefault(one.name, one)
                found[one.name] = max(before, one, key=attrgetter("seen_ms"))
        return sorted(found.values(), key=attrgetter("name"))

    def tallies(self, most: int) -> tuple[list[Tally], bool]:
        """As :meth:`Entries.tallies`, of all shards; a queue has one of each."""
        self._looked()
        tallies: list[Tally] = []
        is_complete = True
        for shard in self._shards:
            some, is_all = shard.tallies(max(1, most // len(self._shards)))
            tallies += some
            is_complete = is_complete and is_all
        return tallies, is_complete
