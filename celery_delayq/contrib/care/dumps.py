"""Reads all data of every entry, in the order of insertion, for a dump.

    sift, all records --> members --dump.lua, READ at a time--> kept entries

Entries that come after the start are left out, and entries that leave meanwhile may be. All others
are read once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ...core.store import selection
from ...core.store.calls import Shard
from ...core.store.entries import Entries
from ...core.store.record import Record
from ...core.store.selection import Filter, Position
from ...core.store.values import NO_RECORD, State, time_in

READ = 100  # entries read in a step: some 3 ms of Redis's time
READ_BYTES = 1_000_000  # about as many bytes of records are read at a time

_UNREADABLE, _LOST, _GONE, _AGAIN = "unreadable", "lost", "gone", "again"


@dataclass(frozen=True)
class Kept:
    """The store's data of one entry.

    Attributes:
        task_id: The task's id.
        place: ``waiting``, ``paused``, ``refused``, ``behind`` (another entry holds its key),
            ``in_flight``, ``dead``; ``unreadable``, if this version cannot read its record;
            ``lost``, if the record is gone.
        record: The record; its text if it is unreadable.
        template: The template that it shares, if it shares an existing one.
        when_ms: The next attempt of a refused entry; the time of death of a dead one.
        attempts: How often it was or may have been sent, an attempt under way included.
        refusals: How many of these were refused.
        uncertain: Whether it may have been delivered.
        error: Its last error; or why it cannot be read.
        is_named: Whether it holds its unique key while it waits; for an entry in flight, whether it
            would if it came back now.
    """

    task_id: str
    place: str
    record: Record
    template: bytes | None
    when_ms: int | None
    attempts: int
    refusals: int
    uncertain: bool
    error: str
    is_named: bool

    @property
    def is_readable(self) -> bool:
        return self.place not in (_UNREADABLE, _LOST)

    @property
    def message(self) -> bytes:
        """Its message.

        Raises:
            ValueError: it cannot be put together.
        """
        return self.record.message(self.task_id.encode(), self.template)


def now_ms(entries: Entries) -> int:
    """Redis's time."""
    return int(_step(entries.shards[0], []).now) // 1000


def owed(entries: Entries) -> int:
    """Return how many cancelled tasks still lack ``REVOKED``."""
    return sum(int(_step(shard, []).owed) for shard in entries.shards)


def dump(entries: Entries) -> Iterator[Kept]:
    """Yield all entries, shard by shard, in the order of insertion; those without a number first.

    Raises:
        StoreDiffers: the store was emptied meanwhile, and is another one now.
    """
    for shard in entries.shards:
        store, start = selection.start(shard)
        for members in selection.pages(shard, Filter(whole=True), store, start, Position()):
            yield from _read(shard, members)
        # A dead entry without its record is found only here.
        for members in selection.pages(
            shard, Filter(states=(State.DEAD,)), store, start, Position()
        ):
            lost = [member for member in members if Position.of(member).number == 0]
            yield from (kept for kept in _read(shard, lost) if kept.place == _LOST)


def _read(shard: Shard, members: Sequence[bytes]) -> Iterator[Kept]:
    left = list(members)
    while left:
        some = left[:READ]
        step = _step(shard, some)
        templates, rows = dict(step.templates), iter(step.found)
        words = step.words.decode().split()
        for member, word in zip(some, words, strict=True):
            if word not in (_GONE, _AGAIN):
                yield _kept(member, word, next(rows), templates)
        left = left[len(words) - words.count(_AGAIN) :]


def _step(shard: Shard, members: Sequence[bytes]) -> Any:
    return shard.scripts.call("dump", max_bytes=READ_BYTES, members=members)


def _kept(
    member: bytes, word: str, row: tuple[bytes, bytes, bytes], templates: dict[bytes, bytes]
) -> Kept:
    text, claim, error = row
    place, *numbers = word.split(":")
    attempts, refusals, uncertain = _claim(claim)
    record, template, when, named = Record(text, 0) if text else NO_RECORD, None, None, False
    if numbers:
        record = Record(text, int(numbers[0]))
        template = templates.get(record.name) if record.name else None
        when, named = time_in(numbers[1]), numbers[2] == "1"
    if place == "in_flight":
        # The result of this attempt is unknown, as after an expired lease.
        attempts, uncertain = attempts + 1, True
    return Kept(
        member[6:].decode(errors="surrogateescape"),
        place,
        record,
        template,
        when,
        attempts,
        refusals,
        uncertain,
        error.decode(errors="replace"),
        named,
    )


def _claim(text: bytes) -> tuple[int, int, bool]:
    """Parse attempts, refusals and whether it is uncertain; see ``lua/prelude/claims.lua``."""
    try:
        attempts, refusals, uncertain = map(int, text.split(b":", 3)[:3])
    except ValueError:
        return 0, 0, False
    return attempts, refusals, uncertain == 1
