"""Lists waiting entries in due order, over all shards.

without a tag   pages of each shard in that order (``pages.py``), merged
by tag          the places of all matches, sorted; then their records, READ at a time
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import NamedTuple

from ..errors import InvalidOption
from . import pages, selection_scan
from .filter import Filter
from .pages import CURSOR, MAX_SIZE, ListCursor
from .selection_scan import READ, Position
from .shard import Shard
from .values import Entry, State

MOST = 100_000  # entries that a listing by tag sorts, in memory

ALL = Filter()

_SORTED = f"a tag of at most {MOST:,} waiting tasks, as they are sorted first; for more use select"


class SortKey(NamedTuple):
    """The place of an entry among those of all shards."""

    due_ms: float
    number: int
    shard: int
    member: bytes = b""
    store: str = ""


def waiting(
    shards: Sequence[Shard],
    earliest_ms: int,
    end_ms: int,
    *,
    chosen: Filter = ALL,
    newest_first: bool = False,
    cursor: str | None = None,
    size: int = MAX_SIZE,
) -> Iterator[Entry]:
    """Yield entries due from *earliest_ms* to just before *end_ms*, in due order.

    Entries that come or go meanwhile make it neither skip nor repeat others. A rescheduled entry
    does not come again, so the listing ends whatever you do with its entries. It leaves out
    unreadable entries; they become dead letters when they fall due. Entries of two shards with the
    same due time have no order.

    Args:
        shards: The shards.
        earliest_ms: The earliest due time.
        end_ms: Just after the latest due time.
        chosen: Only entries of these tags, tasks and queues. With tags, it first reads the due
            times of all matches.
        newest_first: Whether to begin with the latest due time.
        cursor: Continue after the entry that has it.
        size: How many entries you want, if known.

    Raises:
        InvalidOption: *cursor* is not of this store; or, as you iterate, the tags have too many.
    """
    behind = None if cursor is None else _behind(cursor, shards)
    if chosen.tags:
        whole = replace(
            chosen,
            states=(State.PAUSED, State.SCHEDULED),
            after_ms=earliest_ms,
            before_ms=end_ms,
        )
        return _tagged(shards, whole, newest_first, behind)
    by_shard = (
        pages.rows(
            shard,
            number,
            earliest_ms,
            end_ms,
            chosen="" if chosen == ALL else chosen.text,
            newest_first=newest_first,
            behind=behind,
            # Of those that it looks at, few may match.
            size=size if chosen == ALL else MAX_SIZE,
        )
        for number, shard in enumerate(shards)
    )
    return pages.readable(heapq.merge(*by_shard, key=attrgetter("place"), reverse=newest_first))


def _tagged(
    shards: Sequence[Shard], chosen: Filter, newest_first: bool, behind: ListCursor | None
) -> Iterator[Entry]:
    places = sorted(_places(shards, chosen), reverse=newest_first)
    if behind is not None:
        end = float(behind.due), behind.number, behind.shard
        places = [
            place for place in places if (place[:3] < end if newest_first else place[:3] > end)
        ]
    for first in range(0, len(places), READ):
        some = places[first : first + READ]
        found: dict[tuple[int, bytes], Entry] = {}
        for shard_number in {place.shard for place in some}:
            members = [place.member for place in some if place.shard == shard_number]
            read = selection_scan.read(shards[shard_number], chosen, members)
            found.update(((shard_number, member), entry) for member, entry in read)
        for place in some:
            entry = found.get((place.shard, place.member))
            if entry is not None and entry.message:
                at = ListCursor(place.store, place.shard, str(place.due_ms), place.number)
                yield replace(entry, cursor=str(at))


def _places(shards: Sequence[Shard], chosen: Filter) -> list[SortKey]:
    found: list[SortKey] = []
    for shard_number, shard in enumerate(shards):
        store, last = selection_scan.start(shard)
        for members in selection_scan.pages(shard, chosen, store, last, Position()):
            for entry in selection_scan.peek(shard, chosen, members):
                number = pages.number_of(entry.member)
                found.append(SortKey(entry.due_ms, number, shard_number, entry.member, store))
            if len(found) > MOST:
                tags = chosen.tags[0] if len(chosen.tags) == 1 else list(chosen.tags)
                raise InvalidOption("tag", tags, _SORTED)
    return found


def _behind(text: str, shards: Sequence[Shard]) -> ListCursor:
    cursor = ListCursor.read(text)
    in_range = cursor.shard < len(shards)
    if not in_range or pages.store_of(shards[cursor.shard]) != cursor.store:
        raise InvalidOption("cursor", text, CURSOR)
    return cursor
