"""Finds the entries of a selection, step by step, in the order of insertion.

    by tag        pages of `tags`, which is in that order; of several tags, merged
    else          passes over `records` (or, by state: `leased`, `dead`, or the indexes of paused
                  entries), which have no order: each finds the first MOST after the pass before

A :class:`Filter` is what scripts take, here and in a listing; with a shard, and where it began, it
is a :class:`Walk`. ``peek`` and ``read`` tell of the entries that it met. The step that changes an
entry checks again that the selection includes it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from heapq import merge
from itertools import groupby, islice
from typing import Any

from ..errors import StoreDiffers, UnreadableRecord
from .calls import Shard
from .record import Entry, Facts, Record, State, entry_of, entry_with, facts_in, label_of

PAGE = 500  # members in a reply, or about as many entries looked at: some 2 ms
FIRST = 20  # entries in the first step of a pass: they may be large
_PASS_BYTES = 1_000_000  # that a step of a pass reads, about
MOST = 100_000  # members that a pass keeps in memory
SURVEY = 250  # entries in a slice of all: some 2 ms
PEEK, READ = 200, 50  # members that a step looks at, or reads: some 2 ms
_PEEK_BYTES = 1_000_000  # of records read at a time

# The indexes in which to look for a state. Paused entries move from one to the next, in this order.
_WAYS = {
    State.IN_FLIGHT: ("leased",),
    State.DEAD: ("dead",),
    State.PAUSED: ("refused", "due", "relay", "parked"),
}


@dataclass(frozen=True)
class Filter:
    """The conditions of a selection; times in ms. Of several values of one, any is enough.

    ``whole``: leave nothing out, whether readable or not; see ``dump.lua``.
    """

    tags: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    states: tuple[State, ...] = ()
    after_ms: int | None = None
    before_ms: int | None = None
    whole: bool = False

    @property
    def text(self) -> str:
        """The filter as scripts take it; see ``lua/prelude/targets.lua``."""
        times = (
            "-" if time_ms is None else str(time_ms) for time_ms in (self.after_ms, self.before_ms)
        )
        states = ",".join(sorted(self.states))
        labels = (
            "".join(label_of(name).hex() for name in some) for some in (self.tasks, self.queues)
        )
        words = (*times, *(word or "-" for word in (states, *labels)))
        return " ".join((*words, "\0".join(self.tags)) if self.tags else words)

    @property
    def digest(self) -> str:
        """Identifies this filter."""
        return hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()[:16]

    @property
    def is_found_by_way(self) -> bool:
        """Whether the way finds only matching entries, provided that the tags are consistent."""
        if self.tags:
            return self == Filter(tags=self.tags[:1])
        return not self.states

    @property
    def ways(self) -> tuple[str, ...]:
        """The indexes to search, one after the other, without a tag; see ``sift.lua``."""
        if self.whole:
            return ("all",)
        # Between the ways of two states, an entry could go from the later to the earlier one.
        return _WAYS.get(self.states[0], ("records",)) if len(self.states) == 1 else ("records",)


@dataclass(frozen=True, order=True)
class Position:
    """The progress of a selection: it continues after this insertion number.

    ``task_id``: only for entries that lost their record and thus their number; these have 0.
    """

    number: int = -1
    task_id: str = ""

    @classmethod
    def of(cls, member: bytes) -> Position:
        # The last bit only tells the record's size.
        number = int.from_bytes(member[:6], "big") // 2
        return cls(number, "" if number else member[6:].decode(errors="replace"))


_BEGIN = Position()
_UNBOUND = 2**47 - 2  # no insertion number is more, see lua/prelude/inconsistencies.lua


@dataclass(frozen=True)
class Match:
    """An entry that a selection met.

    ``facts``: its state and due time only, if no more was requested.
    ``record``: empty if it was not requested, or cannot be read.
    """

    member: bytes
    facts: Facts
    now_us: int
    record: Record | None = None
    template: bytes | None = None

    @property
    def task_id(self) -> str:
        return self.member[6:].decode(errors="replace")

    @property
    def state(self) -> str:
        """Its state, in the words of ``peek.lua``."""
        return self.facts.word

    @property
    def due_ms(self) -> int:
        """Its due time."""
        return self.facts.due_ms


@dataclass(frozen=True)
class Walk:
    """A walk over the entries of a shard that may match, in the order of insertion.

    Attributes:
        shard: The shard.
        chosen: The filter.
        store: The store's name when the walk began.
        last: The last insertion number then.
        first: The first step by the first tag, if it was read with them.
    """

    shard: Shard
    chosen: Filter
    store: str
    last: int
    first: Any = None

    def pages(self, behind: Position = _BEGIN) -> Iterator[list[bytes]]:
        """Yield members that may match, in order, after *behind*.

        Raises:
            StoreDiffers: the store was emptied, and is another one now.
        """
        return self._tagged(behind) if self.chosen.tags else self._passes(behind)

    def counts(self, behind: Position) -> Iterator[int]:
        """Yield part by part how many entries match, if :attr:`Filter.is_found_by_way`."""
        if self.chosen.tags:
            yield self._step(way="count", after=behind.number, upto=self.last).size
            return
        met: set[int] = set()  # numbers, which take less memory than members
        for members in self._scan(behind, [self.last]):
            before = len(met)
            met.update(int.from_bytes(member[:6], "big") // 2 for member in members)
            yield len(met) - before

    def _tagged(self, behind: Position) -> Iterator[list[bytes]]:
        filters = [replace(self.chosen, tags=(tag,)) for tag in self.chosen.tags]
        walks = [replace(self, chosen=chosen, first=None) for chosen in filters]
        if behind == _BEGIN:
            walks[0] = replace(walks[0], first=self.first)
        found = merge(*(walk._of_tag(behind) for walk in walks), key=_sorting)
        # Once each: an entry may have several of the tags, and an aborted script may have left a
        # member with another last bit.
        members = (next(same) for _, same in groupby(found, _sorting))
        while page := list(islice(members, PAGE)):
            yield page

    def _of_tag(self, behind: Position) -> Iterator[bytes]:
        step = self.first or self._step(way="tag", after=behind.number, upto=self.last, count=PAGE)
        yield from step.members
        while step.cursor != b"0":
            behind = Position.of(step.members[-1]) if step.members else behind
            step = self._step(way="tag", after=behind.number, upto=self.last, count=PAGE)
            yield from step.members

    def _passes(self, behind: Position) -> Iterator[list[bytes]]:
        is_full = True
        while is_full:
            members = self._pass(behind)
            is_full = len(members) == MOST
            for first in range(0, len(members), PAGE):
                yield members[first : first + PAGE]
            behind = Position.of(members[-1]) if members else behind

    def _pass(self, behind: Position) -> list[bytes]:
        """Return the first MOST members after a position, in order."""
        found: dict[bytes, bytes] = {}
        last = [self.last]
        for members in self._scan(behind, last):
            found.update((_sorting(member), member) for member in members)
            if len(found) > 2 * MOST:
                found = {key: found[key] for key in sorted(found)[:MOST]}
                last[0] = Position.of(found[max(found)]).number
        rest = (found[key] for key in sorted(found))
        return list(islice((member for member in rest if Position.of(member) > behind), MOST))

    def _scan(self, behind: Position, last: Sequence[int]) -> Iterator[list[bytes]]:
        """Yield all members found without order, up to *last*; some come twice."""
        # Those without a number share 0; the caller distinguishes them.
        after = behind.number - (behind.number == 0)
        for way in self.chosen.ways:
            cursor, count = b"", FIRST
            while cursor != b"0":
                step = self._step(
                    way=way, after=after, upto=last[0], cursor=cursor or b"0", count=count
                )
                yield step.members
                cursor, count = step.cursor, next_count(count, step.size, PAGE)

    def _step(self, **asked: Any) -> Any:
        found = _sift(self.shard, filter=self.chosen.text, **asked)
        here = _name_in(found)
        if here != self.store:
            raise StoreDiffers("name", here, self.store)
        return found


def begin(shard: Shard, chosen: Filter) -> Walk:
    """Return a walk over the entries that are there now."""
    if chosen.tags:
        first = _sift(shard, way="tag", upto=_UNBOUND, filter=chosen.text)
        if first.store:
            return Walk(shard, chosen, _name_in(first), first.last, first)
    return Walk(shard, chosen, *start(shard))


def start(shard: Shard) -> tuple[str, int]:
    """Return the store's name, and the last insertion number."""
    found = _sift(shard, way="start")
    if not found.store:
        shard.calls.join()
        found = _sift(shard, way="start")
    return _name_in(found), found.last


def _name_in(found: Any) -> str:
    name: str = found.store.decode(errors="backslashreplace")
    return name


def dead_member(shard: Shard, task_id: str) -> bytes | None:
    """Return the member of a dead entry whose record, and thus its number, cannot be read."""
    for page in begin(shard, Filter(states=(State.DEAD,))).pages():
        for member in page:
            if member[6:] == task_id.encode():
                return member
    return None


def _sift(shard: Shard, **asked: Any) -> Any:
    nothing = {"cursor": b"0", "count": PAGE, "after": -1, "upto": -1, "filter": ""}
    return shard.scripts.call("sift", **{**nothing, **asked})


def peek(
    shard: Shard, chosen: Filter, members: Sequence[bytes], *, reads: bool = False
) -> Iterator[Match]:
    """Yield the *members* that match, in order; with their records, if *reads*."""
    left = list(members)
    while left:
        some = left[: READ if reads else PEEK]
        reply = shard.scripts.call(
            "peek", reads=int(reads), filter=chosen.text, max_bytes=_PEEK_BYTES, members=some
        )
        templates, records = dict(reply.templates), iter(reply.found)
        words = reply.words.split()
        for member, word in zip(some, words, strict=True):
            if word not in (b"skipped", b"again"):
                facts = facts_in(word)
                text = next(records) if reads else b""
                record = Record(text, facts.header_end) if facts.header_end else None
                template = templates.get(record.name) if record and record.name else None
                yield Match(member, facts, reply.now, record, template)
        left = left[len(words) - words.count(b"again") :]


def read(shard: Shard, chosen: Filter, members: Sequence[bytes]) -> Iterator[tuple[bytes, Entry]]:
    """Yield the *members* that match, as entries; unreadable ones with whatever is known."""
    for met in peek(shard, chosen, members, reads=True):
        entry = Entry(met.task_id, met.facts, met.due_ms)
        if met.record is not None:
            with suppress(UnreadableRecord, ValueError):
                entry = entry_with(met.task_id, met.facts, met.record)
                entry = entry_of(met.task_id, met.facts, met.record, met.template)
        yield met.member, entry


@dataclass(frozen=True)
class Surveyed:
    """A slice of all entries but the dead ones, in no order.

    Attributes:
        kinds: The common part of some that share a template: ``header``, up to the destination;
            ``queue``, a label; and ``name``, the template's.
        shared: Those: the place of the kind, from 1; due time, ms; id; and the body's JSON.
        whole: The ``id`` and ``record`` of each other one.
        unreadable: The ``id``, ``record`` and ``why`` of each with a defect.
        templates: The templates of all these, by name.
        dead: How many dead ones are left out.
    """

    kinds: Sequence[Any]
    shared: Iterator[tuple[bytes, bytes, bytes, bytes]]
    whole: Sequence[Any]
    unreadable: Sequence[Any]
    templates: Mapping[bytes, bytes]
    dead: int


def survey(shard: Shard) -> Iterator[Surveyed]:
    """Yield all entries of a shard, slice by slice; see ``survey.lua``.

    Entries that stay throughout are met, some twice if Redis resizes its hash meanwhile.
    """
    cursor, count = b"0", FIRST
    while True:
        found = shard.scripts.call("survey", cursor=cursor, count=count)
        lines = found.found.split(b"\n") if found.found else []
        shared = zip(*[iter(lines)] * 4, strict=True)
        templates = dict(found.templates)
        yield Surveyed(found.kinds, shared, found.whole, found.unreadable, templates, found.dead)
        cursor, count = found.cursor, next_count(count, found.size, SURVEY)
        if cursor == b"0":
            return


def next_count(count: int, size: int, most: int) -> int:
    """Return how many entries the next step looks at, if *count* of them had *size* bytes."""
    return max(1, min(most, 2 * count, count * _PASS_BYTES // max(size, 1)))


def _sorting(member: bytes) -> bytes:
    """Return the sort key of a member: the number without its last bit, and the id."""
    return (int.from_bytes(member[:6], "big") // 2).to_bytes(6, "big") + member[6:]
