"""Searches the store for inconsistencies, without changing anything.

    records <----> due, relay, refused,          one place to a record, one record to a place
       |           parked, leased, dead
       |       <-- claims, errors                only of existing entries
       |<--------> tags, holders                 each tag and key of a record, and no other
    templates <--> template_uses                 the number of records that share one
    outbox <-----> outbox_messages               each has the other
    meta                                         no record has a later number than the last

Each slice is one atomic step that reads both sides, so moving entries are consistent. Only the
counts of templates span slices: see :class:`Uses`. Data in generations (tombstones, fences,
answers, marks of messages) has no other side, and is deleted with its generation.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Iterator
from dataclasses import dataclass, replace
from typing import Any

from ...core.store.calls import Shard
from ...core.store.entries import Entries
from ...core.store.membership import check_types
from ...core.store.selection import FIRST, next_count
from .inconsistencies import COUNTED, ONCE, Finding

MOST = 200  # fields of a slice: some 3 ms

_INDEXES = ("due", "relay", "leased", "dead", "refused", "behind", "parked", "tags", "outbox")
_HASHES = ("claims", "errors", "holders", "outbox_messages", "meta")
# The keys about templates; records last, so that those that leave meanwhile are not counted.
COUNTING = ("templates", "records")


def check_store(entries: Entries) -> Iterator[Finding]:
    """Yield each inconsistency once, reading slice by slice while you iterate.

    Raises:
        StoreError: a key belongs to another program; it names the key.
    """
    # First, as an error of the check itself could not name the key.
    for scripts in entries.key_sets:
        check_types(scripts.connection, scripts.keys, "check", None)
    entries.check_membership()
    entries = entries.now()  # over the shards that the store has
    for number, shard in enumerate(entries.shards):
        for finding in _check(shard):
            yield replace(finding, shard=number)


def _check(shard: Shard) -> Iterator[Finding]:
    uses = Uses(shard)
    given: set[int] = set()  # hashes, which take less memory than the findings
    for part in (*_INDEXES, *_HASHES, *COUNTING):
        for finding in uses.find(part):
            mark = hash(finding.kind if finding.kind in ONCE else finding)
            if mark not in given:
                given.add(mark)
                yield finding
    for wrong in uses.wrong():
        yield wrong.finding


@dataclass(frozen=True)
class Miscount:
    """A template that counts the wrong number of records.

    Attributes:
        finding: The finding to report.
        name: The template's name.
        counted: Its count, as stored.
        sharing: How many records share it; to raise the count, how many surely did from the start.
        how: The repair by ``recount.lua``: ``raise``, ``lower`` or ``drop``.
        seq: The last insertion number.
    """

    finding: Finding
    name: bytes
    counted: bytes
    sharing: int
    how: str
    seq: int

    @property
    def arguments(self) -> tuple[bytes, str, bytes | int, int, int]:
        """The arguments for ``recount.lua``."""
        if self.how == "raise":
            by = self.sharing - number(self.counted)
            return self.name, self.how, by, self.sharing, 0
        return self.name, self.how, self.counted, self.sharing, self.seq


class Uses:
    """Compares the counts of templates with the records that share them.

    Unchanged records only become fewer during the check. So more of them than the count at its
    start prove that the count was too low, by at least the difference. A count is proved too high
    only if no record came or left meanwhile. If a record cannot be read, its template is unknown,
    and no count is reported as too high.
    """

    def __init__(self, shard: Shard, names: Container[bytes] | None = None) -> None:
        self._shard = shard
        self._names = names  # if given, only these are counted
        self._began_us = 0
        self._counts, self._lasts = self._read()
        self._seen: set[int] = set()  # hashes, which take less memory than the members
        self._old: Counter[bytes] = Counter()
        self._all: Counter[bytes] = Counter()
        self._uncounted: list[bytes] = []
        self._reads_all = True

    def find(self, part: str) -> Iterator[Finding]:
        for found, _, _, shared in _slices(self._shard, part):
            for name, member, changed in shared:
                self._count(name, member, int.from_bytes(changed, "big"))
            for kind, task_id, which in found:
                if part == "templates":
                    self._uncounted.append(which)
                    continue
                self._reads_all &= kind != b"unreadable_record"
                yield _finding(kind.decode(), task_id, part, which)

    def _means(self, name: bytes) -> bool:
        return self._names is None or name in self._names

    def _count(self, name: bytes, member: bytes, changed_us: int) -> None:
        if not self._means(name) or hash(member) in self._seen:
            return
        self._seen.add(hash(member))
        self._all[name] += 1
        if changed_us <= self._began_us:
            self._old[name] += 1

    def wrong(self) -> Iterator[Miscount]:
        """Yield the wrong counts, after all of :data:`COUNTING` was read."""
        yield from self._too_low()
        counts, lasts = self._read()
        if self._reads_all and len(lasts | self._lasts) == 1:
            same = counts.items() & self._counts.items()
            yield from self._too_high(dict(same))
        if self._reads_all:
            for name in set(self._uncounted) - counts.keys():
                if not self._all[name]:
                    yield self._miscount(name, b"0", 0, "drop")

    def _too_low(self) -> Iterator[Miscount]:
        for name, old in self._old.items():
            counted = self._counts.get(name, b"0")
            if old > number(counted):
                yield self._miscount(name, counted, old, "raise")

    def _too_high(self, counts: dict[bytes, bytes]) -> Iterator[Miscount]:
        for name, counted in counts.items():
            if number(counted) > self._all[name] or not self._all[name]:
                yield self._miscount(name, counted, self._all[name], "lower")

    def _miscount(self, name: bytes, counted: bytes, sharing: int, how: str) -> Miscount:
        part = "templates" if how == "drop" else "template_uses"
        finding = Finding(COUNTED, name.hex(), part, name)
        return Miscount(finding, name, counted, sharing, how, min(self._lasts))

    def _read(self) -> tuple[dict[bytes, bytes], set[int]]:
        counts: dict[bytes, bytes] = {}
        lasts = set()
        for _, last, now_us, shared in _slices(self._shard, "template_uses"):
            self._began_us = self._began_us or now_us
            lasts.add(last)
            counts |= {name: uses for name, uses, _ in shared if self._means(name)}
        return counts, lasts


def _slices(shard: Shard, part: str) -> Iterator[tuple[list[Any], int, int, list[Any]]]:
    cursor: Any = 0
    count = FIRST
    while True:
        slice_ = shard.scripts.call("check", part=part, cursor=cursor, count=count)
        cursor = slice_.cursor
        yield slice_.found, number(slice_.last), slice_.now, slice_.shared
        if int(cursor) == 0:
            return
        count = next_count(count, slice_.size, MOST)


# A number that HINCRBY can increase.
_COUNT = re.compile(rb"0|(?=.{1,15}\Z)-?[1-9][0-9]*")


def number(text: bytes) -> int:
    """Return a count as stored; 0 if Redis does not take it as a number, such as ``01``."""
    return int(text) if _COUNT.fullmatch(text) else 0


def _finding(kind: str, task_id: bytes, part: str, field: bytes) -> Finding:
    return Finding(kind, task_id.decode(errors="replace"), part, field)
