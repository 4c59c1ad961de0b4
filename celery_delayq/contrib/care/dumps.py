"""Reads all data of every entry, in the order of insertion, for a dump.

    sift, all records --> members --dump.lua, READ at a time--> kept entries

Entries that come after the start are left out, and entries that leave meanwhile may be. All others
are read once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...core.store.calls import Shard
from ...core.store.entries import Entries
from ...core.store.record import Facts, Record, State
from ...core.store.scripts import parts_of
from ...core.store.selection import Filter, Position, begin

READ = 100  # entries read in a step: some 3 ms of Redis's time
READ_BYTES = 1_000_000  # about as many bytes of records are read at a time

_UNREADABLE, _LOST = "unreadable", "lost"


@dataclass(frozen=True)
class Kept:
    """The store's data of one entry.

    Attributes:
        task_id: The task's id.
        facts: What the script tells of it, in the words of ``dump.lua``.
        record: The record; its text if it is unreadable.
        template: The template that it shares, if it shares an existing one.
    """

    task_id: str
    facts: Facts
    record: Record
    template: bytes | None

    @property
    def place(self) -> str:
        """``waiting``, ``paused``, ``refused``, ``behind``, ``in_flight`` or ``dead``.

        ``unreadable``, if this version cannot read its record; ``lost``, if that is gone.
        """
        return self.facts.word

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


def kept_in(entries: Entries) -> Iterator[Kept]:
    """Yield all entries, shard by shard, in the order of insertion; those without a number first.

    Raises:
        StoreDiffers: the store was emptied meanwhile, and is another one now.
    """
    for shard in entries.shards:
        walk = begin(shard, Filter(whole=True))
        for members in walk.pages():
            yield from _read(shard, members)
        # A dead entry without its record is found only here.
        for members in replace(walk, chosen=Filter(states=(State.DEAD,))).pages():
            lost = [member for member in members if Position.of(member).number == 0]
            yield from (kept for kept in _read(shard, lost) if kept.place == _LOST)


def _read(shard: Shard, members: Sequence[bytes]) -> Iterator[Kept]:
    left = list(members)
    while left:
        some = left[:READ]
        step = _step(shard, some)
        templates, records = dict(step.templates), iter(step.found)
        words = step.words.split()
        for member, word in zip(some, words, strict=True):
            if word not in (b"gone", b"again"):
                facts = Facts.of(*parts_of(word))
                record = Record(next(records), facts.header_end)
                template = templates.get(record.name) if facts.header_end else None
                yield Kept(member[6:].decode(errors="surrogateescape"), facts, record, template)
        left = left[len(words) - words.count(b"again") :]


def _step(shard: Shard, members: Sequence[bytes]) -> Any:
    return shard.scripts.call("dump", max_bytes=READ_BYTES, members=members)
