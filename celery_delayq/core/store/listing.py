"""The cursor of a listing; waiting entries of a shard in due order; those of all, merged.

    all places where entries wait --page.lua, at one instant--> rows by (due time, insertion number)
    rows of each shard ------------------------------merged by (due time, insertion number, shard)
    by tag: the places of all matches, sorted -----> their records, READ at a time

Other entries do not affect an entry's place in that order, nor does the index it waits in. So a
listing that continues after a row meets each entry with an unchanged due time exactly once.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from operator import attrgetter
from typing import Any, NamedTuple

from ..errors import InvalidOption, UnreadableRecord
from ..threads import begun, gather
from . import selection
from .calls import Shard
from .record import Entry, Facts, Record, State, entry_of, facts_in
from .selection import READ, Filter

PAGE = 200
PAGE_BYTES = 4_000_000
MAX_SIZE = 1000
REFUSED = 1000  # entries that a page looks at, since they are not in due order
MOST = 100_000  # entries that a listing by tag sorts, in memory

ALL = Filter()
_SORTED = f"a tag of at most {MOST:,} waiting tasks, as they are sorted first; for more use select"
_EXPECTED = "the cursor of a task in a list of this store"
_CURSOR = re.compile(r"([0-9a-f]*):(\d{1,2}):(-?\d+(?:\.\d+)?(?:e[+-]?\d+)?):(\d{1,15})")


@dataclass(frozen=True)
class Listing:
    """The waiting entries of a list.

    Attributes:
        earliest_ms: The earliest due time.
        end_ms: Just after the latest due time.
        chosen: Only entries of these tags, tasks and queues. With tags, the due times of all
            matches are read first.
        newest_first: Whether to begin with the latest due time.
        cursor: Continue after the entry that has it.
        size: How many are wanted, if known.
    """

    earliest_ms: int
    end_ms: int
    chosen: Filter = ALL
    newest_first: bool = False
    cursor: str | None = None
    size: int = MAX_SIZE

    @property
    def has_all(self) -> bool:
        """Whether any waiting entry matches."""
        return self.chosen == ALL


@dataclass(frozen=True)
class ListCursor:
    """A row of a listing, after which another listing can continue.

    Attributes:
        store: The store's random name.
        shard: The row's shard.
        due: Its due time in ms, as Redis prints it.
        number: Its insertion number, as in the member.
    """

    store: str
    shard: int
    due: str
    number: int

    def __str__(self) -> str:
        return f"{self.store}:{self.shard}:{self.due}:{self.number}"

    @classmethod
    def read(cls, text: str) -> ListCursor:
        """Read a cursor from text.

        Raises:
            InvalidOption: *text* is no cursor.
        """
        found = _CURSOR.fullmatch(text) if isinstance(text, str) else None
        if not found:
            raise InvalidOption("cursor", text, _EXPECTED)
        return cls(found[1], int(found[2]), found[3], int(found[4]))

    def order_in(self, shard_number: int, *, newest_first: bool) -> int:
        """Return the insertion number after which a shard continues, at the same due time."""
        if newest_first:
            return self.number if shard_number >= self.shard else self.number + 1
        return self.number if shard_number <= self.shard else self.number - 1


@dataclass(frozen=True)
class _Row:
    """A row as read from the store."""

    due: float
    cursor: ListCursor
    member: bytes
    record: Record
    template: bytes | None
    facts: Facts

    @property
    def place(self) -> tuple[float, int, int]:
        """Its place among the rows of all shards."""
        return self.due, self.cursor.number, self.cursor.shard

    def entry(self) -> Entry:
        """Return the entry.

        Raises:
            UnreadableRecord: it cannot be read.
        """
        task_id = self.member[6:].decode(errors="replace")
        return entry_of(task_id, self.facts, self.record, self.template, str(self.cursor))


def store_of(shard: Shard) -> str:
    """Return the store's random name; empty if no process has joined it."""
    name: bytes = _page(shard, Listing(0, 0), "-1", -1, limit=0).store
    return name.decode(errors="replace")


def _rows(shard: Shard, what: Listing, behind: ListCursor | None) -> Iterator[_Row]:
    """Yield the rows of a shard that a listing has; only those after *behind*."""
    earliest_ms, end_ms, newest_first = what.earliest_ms, what.end_ms, what.newest_first
    due, order = (str(end_ms), -1) if newest_first else (str(earliest_ms - 1), 2**48)
    if behind is not None:
        is_inside = float(behind.due) < end_ms if newest_first else float(behind.due) >= earliest_ms
        if is_inside:
            due, order = behind.due, behind.order_in(shard.number, newest_first=newest_first)
    # Of those that it looks at, few may match.
    limit = min(what.size, PAGE) if what.has_all else PAGE
    while True:
        page = _page(shard, what, due, order, limit)
        store = page.store.decode(errors="replace")
        templates = dict(page.templates)
        for (member, text), known in zip(page.found, page.known, strict=True):
            facts = facts_in(known.state)
            record = Record(text, facts.header_end)
            yield _Row(
                float(known.due),
                ListCursor(store, shard.number, known.due.decode(), _number_of(member)),
                member,
                record,
                templates.get(record.name),
                facts,
            )
        if page.is_last:
            return
        ((last, number),) = page.last
        due, order = last.decode(), int(number)


def _number_of(member: bytes) -> int:
    """Return the insertion number of a member, with the bit that tells the record's size."""
    return int.from_bytes(member[:6].ljust(6, b"\0"), "big")


def _page(shard: Shard, what: Listing, after: str, order: int, limit: int) -> Any:
    return shard.scripts.call(
        "page",
        after=after,
        order=order,
        first=what.earliest_ms,
        before=what.end_ms,
        newest=int(what.newest_first),
        limit=limit,
        filter="" if what.has_all else what.chosen.text,
        max_bytes=PAGE_BYTES,
        most=REFUSED,
    )


def _readable(rows: Iterable[_Row]) -> Iterator[Entry]:
    """Yield the entries of *rows*, each once, without unreadable ones."""
    given: set[int] = set()  # hashes take less memory than members
    for row in rows:
        if hash(row.member) in given:
            continue
        given.add(hash(row.member))
        with suppress(UnreadableRecord):
            yield row.entry()


class _SortKey(NamedTuple):
    """The place of an entry among those of all shards."""

    due_ms: float
    number: int
    shard: int
    member: bytes = b""
    store: str = ""


def waiting(shards: Sequence[Shard], what: Listing) -> Iterator[Entry]:
    """Yield waiting entries, in due order.

    Entries that come or go meanwhile make it neither skip nor repeat others. A rescheduled entry
    does not come again, so the listing ends whatever you do with its entries. It leaves out
    unreadable entries; they become dead letters when they fall due. Entries of two shards with the
    same due time have no order.

    Raises:
        InvalidOption: the cursor is not of this store; or, as you iterate, the tags have too many.
    """
    behind = None if what.cursor is None else _behind(what.cursor, shards)
    if what.chosen.tags:
        return _tagged(shards, what, behind)
    by_shard = begun(_rows(shard, what, behind) for shard in shards)
    return _readable(heapq.merge(*by_shard, key=attrgetter("place"), reverse=what.newest_first))


def _tagged(shards: Sequence[Shard], what: Listing, behind: ListCursor | None) -> Iterator[Entry]:
    newest_first = what.newest_first
    chosen = replace(
        what.chosen,
        states=(State.PAUSED, State.SCHEDULED),
        after_ms=what.earliest_ms,
        before_ms=what.end_ms,
    )
    places = sorted(_places(shards, chosen), reverse=newest_first)
    if behind is not None:
        end = float(behind.due), behind.number, behind.shard
        places = [
            place for place in places if (place[:3] < end if newest_first else place[:3] > end)
        ]
    for first in range(0, len(places), READ):
        some = places[first : first + READ]
        reads = [
            partial(_read, shard, chosen, [each.member for each in some if each.shard == number])
            for number, shard in enumerate(shards)
        ]
        found = dict(chain.from_iterable(gather(*reads)))
        for place in some:
            entry = found.get((place.shard, place.member))
            if entry is not None and entry.message:
                at = ListCursor(place.store, place.shard, str(place.due_ms), place.number)
                yield replace(entry, cursor=str(at))


def _read(
    shard: Shard, chosen: Filter, members: list[bytes]
) -> list[tuple[tuple[int, bytes], Entry]]:
    read = selection.read(shard, chosen, members) if members else ()
    return [((shard.number, member), entry) for member, entry in read]


def _places(shards: Sequence[Shard], chosen: Filter) -> list[_SortKey]:
    found = [*chain.from_iterable(gather(*(partial(_places_in, one, chosen) for one in shards)))]
    if len(found) > MOST:
        raise _too_many(chosen)
    return found


def _places_in(shard: Shard, chosen: Filter) -> list[_SortKey]:
    found: list[_SortKey] = []
    walk = selection.begin(shard, chosen)
    for members in walk.pages():
        for entry in selection.peek(shard, chosen, members):
            number = _number_of(entry.member)
            found.append(_SortKey(entry.due_ms, number, shard.number, entry.member, walk.store))
        if len(found) > MOST:
            raise _too_many(chosen)
    return found


def _too_many(chosen: Filter) -> InvalidOption:
    tags = chosen.tags[0] if len(chosen.tags) == 1 else list(chosen.tags)
    return InvalidOption("tag", tags, _SORTED)


def _behind(text: str, shards: Sequence[Shard]) -> ListCursor:
    cursor = ListCursor.read(text)
    in_range = cursor.shard < len(shards)
    if not in_range or store_of(shards[cursor.shard]) != cursor.store:
        raise InvalidOption("cursor", text, _EXPECTED)
    return cursor
