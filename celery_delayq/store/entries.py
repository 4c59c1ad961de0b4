"""The store as its callers see it: finds the shards for an id, a key or "all".

schedule                      each entry to the shard of its id
cancel, move, edit, find      shard_of(id) --> that one; with keys there is only one shard
waiting, history, counts      every shard, results merged

Each step is documented in its module: ``schedule.py``, ``changes.py``, ``lookup.py``, ``pages.py``,
``overview.py``, ``queue_counts.py``.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from operator import attrgetter
from typing import Protocol, TypeVar

from .. import clock
from ..clock import When
from ..errors import DelayQError, InvalidOption, UnreadableRecord
from . import changes, lookup, overview, pages, queue_counts, replicas, selection_scan
from .history_entry import HistoryEntry
from .ids import Target, named, target_of_member
from .keys import shard_of
from .lookup import Departure
from .member import Membership
from .outcome import Outcome
from .overview import Counts, Pause, Scanner
from .pages import CURSOR, MAX_SIZE, Cursor
from .queue_counts import Tally
from .record import NewRecord, Record
from .replicas import Shortfalls, Wanted
from .schedule import schedule
from .scripts import Scripts
from .shard import Shard
from .values import Cancelled, Change, Entry, NewEntry, Receipt, State


class HasId(Protocol):
    """Belongs to the shard of its task id."""

    @property
    def task_id(self) -> str: ...


Part = TypeVar("Part", bound=HasId)
Answer = TypeVar("Answer")


class Entries:
    """The store as its callers see it.

    Args:
        shards: The scripts of each shard, by number.
        membership: This process's version of the settings on which all processes agree.

    Attributes:
        unasked_links: Each shard, before a check or a join.
    """

    def __init__(self, shards: Sequence[Scripts], membership: Membership) -> None:
        self.unasked_links = [Shard(one, membership) for one in shards]
        # The one shard that processes with different numbers of shards have in common.
        self._meeting_place = max(self.unasked_links, key=lambda one: one.keys.is_meeting_place)
        self._is_joined = len(shards) == 1  # then a call joins by itself
        self._has_looked = False
        self._shortfalls = Shortfalls()

    def join(self, until: float | None = None) -> None:
        """Check that this process may use the store; a call does so by itself.

        Args:
            until: When to give up, by the monotonic clock.

        Raises:
            StoreDiffers: other processes use it with different settings.
        """
        self._meeting_place.calls.join(until)
        self._is_joined = True

    def check_membership(self) -> str:
        """Check that this process may read the store, without changing anything.

        Returns:
            The scanners' broker, if it is not this process's; else empty.

        Raises:
            StoreDiffers: other processes use it with different settings.
        """
        broker = self._meeting_place.member.check_membership()
        self._has_looked = True
        return broker

    @property
    def links(self) -> Sequence[Shard]:
        """Each shard, to read. Checks first: with another layout all would look empty."""
        if not self._has_looked:
            self.check_membership()
        return self.unasked_links

    @property
    def links_to_change(self) -> Sequence[Shard]:
        """Each shard, to change. Joins first, in the shard common to all processes."""
        if not self._is_joined:
            self.join()
        return self.unasked_links

    def in_parts(
        self, given: Sequence[Part], step: Callable[[Shard, list[Part]], Iterable[Answer]]
    ) -> list[Answer]:
        """Run a step that changes the store in each shard, with its part of *given*.

        Returns:
            The answers, in the order of *given*.

        Raises:
            StoreUnavailable: a step raised it; other shards may have been changed before.
        """
        links, answers = self.links_to_change, dict[int, Answer]()
        for shard, places in self._parts(given).items():
            told = step(links[shard], [given[place] for place in places])
            answers.update(zip(places, told, strict=True))
        return [answers[place] for place in range(len(given))]

    def _parts(self, given: Sequence[HasId]) -> dict[int, list[int]]:
        """Return the places of *given* by shard."""
        parts: defaultdict[int, list[int]] = defaultdict(list)
        for place, one in enumerate(given):
            parts[shard_of(one.task_id, len(self.unasked_links))].append(place)
        return parts

    def schedule(
        self,
        new: Sequence[NewEntry],
        *,
        supersede: bool = False,
        owes: int = 0,
        until: float | None = None,
        pauses: Iterable[float] = (),
    ) -> list[Receipt | DelayQError]:
        """Schedule entries, in one step per shard; see :func:`schedule.schedule`."""
        step = partial(schedule, supersede=supersede, owes=owes, until=until, pauses=pauses)
        if len(self.unasked_links) == 1:
            return step(self.unasked_links[0], new)
        return self.in_parts(new, step)

    def wait_for_replicas(self, receipts: Sequence[Receipt], wanted: Wanted) -> int:
        """Wait until replicas have the entries that :meth:`schedule` just wrote; never raises.

        Returns:
            How many replicas have them, as :func:`replicas.wait`; of several shards, the fewest.
        """
        until = clock.monotonic() + wanted.seconds
        return min(
            replicas.wait(
                self.unasked_links[shard],
                wanted,
                [receipts[place] for place in places],
                until,
                self._shortfalls,
            )
            for shard, places in self._parts(receipts).items()
        )

    def cancel(
        self, who: Target, *, owes: bool = False, tells: bool = True, remove: bool = False
    ) -> tuple[Outcome, Cancelled | None]:
        """Remove an entry that was not delivered yet; see :func:`changes.cancel_one`.

        Raises:
            UnreadableRecord: its record cannot be read, and *remove* is false, or it is not dead.
        """
        link = _of(self.links_to_change, who)
        step = partial(changes.cancel_one, link, owes=owes, tells=tells, remove=remove)
        try:
            return step(who)
        except UnreadableRecord as error:
            member = selection_scan.dead_member(link, error.task_id) if remove else None
            if member is not None:
                return step(target_of_member(member))
            if error.why == changes.NO_RECORD:
                return Outcome.NOT_FOUND, None
            raise

    def mark_stored(self, cancelled: Cancelled) -> None:
        """Note that ``REVOKED`` was stored for a task."""
        changes.mark_stored(_of(self.unasked_links, cancelled.task_id), [cancelled])

    def move(
        self,
        who: Target,
        when: When,
        *,
        mode: str = "",
        only: str = "",
        if_due_ms: int | None = None,
    ) -> tuple[Outcome, Change]:
        """Give an entry another due time; see :func:`changes.reschedule`."""
        link = _of(self.links_to_change, who)
        steps = changes.reschedule(link, [who], when, mode=mode, only=only, if_due_ms=if_due_ms)
        return changes.only(steps)

    def hold(self, words: Sequence[tuple[str, str, str, int]], until: float) -> None:
        """Report of runs that hold keys: id, key, delivery, and ms, as ``hold.lua`` has them."""
        parts: defaultdict[int, list[str | int]] = defaultdict(list)
        for word in words:
            parts[shard_of(word[1], len(self.unasked_links))] += word
        for shard, some in parts.items():
            self.unasked_links[shard].scripts.call("hold", until=until, words=some)

    def edit(self, who: Target, seen: Record | None, new: NewRecord) -> Outcome:
        """Give an entry another message; see :func:`changes.edit`."""
        return changes.edit(_of(self.links_to_change, who), who, seen, new)

    def pause(self, lane: bytes, name: str, *, late: bool = False) -> None:
        """Park the tasks of a lane as they fall due, from when this returns.

        Args:
            lane: From :func:`lane_for`.
            name: The name of the queue or task, for display.
            late: Whether the time parked counts as lateness.
        """
        for link in self.links_to_change:
            link.calls.call("pause", lane=lane, called=name, late=int(late))

    def resume(self, lane: bytes, rate: float | None = None) -> bool:
        """Let parked entries of a lane come back, *rate* a second; return whether it was paused.

        Shards share the rate.
        """
        links = self.links_to_change
        part = (rate or 0) / len(links)
        # Ask each shard, whatever the first ones answer.
        answers = [link.calls.call("resume", lane=lane, rate=part) for link in links]
        return [b"done"] in answers

    def find(self, who: Target) -> Entry | None:
        """Return the entry, or ``None``; see :func:`lookup.find`."""
        return lookup.find(_of(self.links, who), who)

    def state(self, who: Target) -> State | None:
        """Return the state of an entry, or ``None``; see :func:`lookup.state`."""
        return lookup.state(_of(self.links, who), who)

    def departure(self, who: Target) -> Departure | None:
        """Return how and when an entry left; see :func:`lookup.departure`."""
        return lookup.departure(_of(self.links, who), who)

    def handed_over_ms(self, who: Target) -> int | None:
        """Return when an entry was delivered; ``None`` if it was not, or its tombstone is gone."""
        left = self.departure(who)
        return left.when_ms if left and left.how == "handed_over" else None

    def cancelled_ms_ago(self, who: Target) -> int | None:
        """Return how long ago an entry was cancelled, if no copy can have been delivered."""
        left = self.departure(who)
        return left.now_ms - left.when_ms if left and left.how == "cancelled" else None

    def waiting(
        self,
        earliest_ms: int,
        end_ms: int,
        *,
        cursor: str | None = None,
        size: int = MAX_SIZE,
    ) -> Iterator[Entry]:
        """Yield entries due from *earliest_ms* to just before *end_ms*, in due order.

        Entries that come or go meanwhile make it neither skip nor repeat others. A rescheduled
        entry does not come again, so the listing ends whatever you do with its entries. It leaves
        out unreadable entries; they become dead letters when they fall due. Entries of two shards
        with the same due time have no order.

        Args:
            earliest_ms: The earliest due time.
            end_ms: Just after the latest due time.
            cursor: Continue after the entry that has it.
            size: How many entries you want, if known.

        Raises:
            InvalidOption: *cursor* is not of this store.
        """
        links = self.links
        behind = None if cursor is None else _behind(cursor, links)
        rows = (
            pages.rows(link, number, earliest_ms, end_ms, behind=behind, size=size)
            for number, link in enumerate(links)
        )
        return pages.readable(heapq.merge(*rows, key=attrgetter("place")))

    def history(self, limit: int) -> list[HistoryEntry]:
        """Return the latest events, newest first."""
        events = (lookup.history(link, limit) for link in self.links)
        newest_first = heapq.merge(*events, key=attrgetter("when_ms"), reverse=True)
        return list(islice(newest_first, limit))

    def pauses(self) -> list[Pause]:
        """Return the lanes that are paused or coming back."""
        return overview.union_of(overview.pauses_in(link) for link in self.links)

    def counts(self) -> Counts:
        """Return all counts; those of one shard are of one instant."""
        return overview.sum_of([overview.counts_in(link) for link in self.links])

    def scanners(self) -> list[Scanner]:
        """Return the live scanners by name; each serves every shard."""
        found: dict[str, Scanner] = {}
        for link in self.links:
            for one in overview.scanners_in(link):
                before = found.setdefault(one.name, one)
                found[one.name] = max(before, one, key=attrgetter("seen_ms"))
        return sorted(found.values(), key=attrgetter("name"))

    def tallies(self, most: int) -> tuple[list[Tally], bool]:
        """Count each shard's waiting entries by queue; see :func:`queue_counts.tallies_in`."""
        part = max(1, most // len(self.unasked_links))
        found = [queue_counts.tallies_in(link, part) for link in self.links]
        return [one for some, _ in found for one in some], all(is_all for _, is_all in found)


def _of(links: Sequence[Shard], who: Target) -> Shard:
    if len(links) == 1:
        return links[0]
    if who[:1] == b"k":
        raise InvalidOption("key", named(who), "a task's id: keys need delayq_shards to be 1")
    return links[shard_of(named(who), len(links))]


def _behind(text: str, links: Sequence[Shard]) -> Cursor:
    cursor = Cursor.read(text)
    in_range = cursor.shard < len(links)
    if not in_range or pages.store_of(links[cursor.shard]) != cursor.store:
        raise InvalidOption("cursor", text, CURSOR)
    return cursor
