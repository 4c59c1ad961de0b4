"""Look through the store for what does not fit together; changes nothing.

    records <----> due, relay, refused,          one place to a record, one record to a place
       |           parked, leased, dead
       |       <-- claims, errors                only of what is there
       |<--------> tags, holders                 each tag and key of a record, and no other
    templates <--> template_uses                 as many as records share
    outbox <-----> outbox_messages               each has the other
    meta                                         no record has a later number than the last

Each slice is one atomic step that looks at both sides, so what is in motion fits. Only the counts
of templates span slices: see :class:`Uses`. What is kept in generations (tombstones, fences,
answers, marks of messages) has no other side, and goes with its generation.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Iterator
from dataclasses import dataclass, replace
from typing import Any

from ..store.entries import Entries
from ..store.selection_scan import FIRST, next_count
from ..store.shard import Shard
from ..store.types import check_types
from .inconsistencies import COUNTED, ONCE, Finding

MOST = 200  # fields of a slice: some 3 ms

_INDEXES = ("due", "relay", "leased", "dead", "refused", "parked", "tags", "outbox")
_HASHES = ("claims", "errors", "holders", "outbox_messages", "meta")
# Those that tell of templates; the records last, as what leaves meanwhile is not counted then.
COUNTING = ("templates", "records")


def check(entries: Entries) -> Iterator[Finding]:
    """What does not fit, read slice by slice while one iterates; each finding once.

    Raises:
        StoreError: a key is another program's, and which.
    """
    # Before it looks: that reads a key, and could not say which it was.
    for link in entries.unasked_links:
        check_types(link.scripts.connection, link.keys, "check", None)
    for number, link in enumerate(entries.links):
        for finding in _check(link):
            yield replace(finding, shard=number)


def _check(link: Shard) -> Iterator[Finding]:
    uses = Uses(link)
    given: set[int] = set()  # hashes, which take less than the findings
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
        finding: What is told of it.
        name: The template's.
        counted: What it counted, as it stands there.
        sharing: How many records were seen that share it; to raise it, of those that surely did
            when the look began.
        how: What ``recount.lua`` does about it: ``raise``, ``lower`` or ``drop``.
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
        """What ``recount.lua`` is told."""
        if self.how == "raise":
            by = self.sharing - number(self.counted)
            return self.name, self.how, by, self.sharing, 0
        return self.name, self.how, self.counted, self.sharing, self.seq


class Uses:
    """The counts of templates, held against the records that share them.

    Records that have not changed since the look began only become fewer, so to find more of them
    than were counted then proves a count too low, by at least the difference. One too high is
    proved where nothing came or went meanwhile. Where a record cannot be read, nobody knows what it
    shares: then nothing is too high.
    """

    def __init__(self, link: Shard, names: Container[bytes] | None = None) -> None:
        self._link = link
        self._names = names  # the only ones that are counted
        self._began_us = 0
        self._counts, self._lasts = self._read()
        self._seen: set[int] = set()  # hashes, which take less than the members
        self._old: Counter[bytes] = Counter()
        self._all: Counter[bytes] = Counter()
        self._uncounted: list[bytes] = []
        self._reads_all = True

    def find(self, part: str) -> Iterator[Finding]:
        for found, _, _, shared in _slices(self._link, part):
            for name, member, changed in shared:
                self._count(name, member, int.from_bytes(changed, "big"))
            for kind, task_id, field in found:
                if part == "templates":
                    self._uncounted.append(field)
                    continue
                self._reads_all &= kind != b"unreadable_record"
                yield _finding(kind.decode(), task_id, part, field)

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
        """Those that are wrong, once all that tells of them was looked at."""
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
        for _, last, now_us, shared in _slices(self._link, "template_uses"):
            self._began_us = self._began_us or now_us
            lasts.add(last)
            counts |= {name: uses for name, uses, _ in shared if self._means(name)}
        return counts, lasts


def _slices(link: Shard, part: str) -> Iterator[tuple[list[Any], int, int, list[Any]]]:
    cursor: Any = 0
    count = FIRST
    while True:
        slice_ = link.scripts.call("check", part=part, cursor=cursor, count=count)
        cursor = slice_.cursor
        yield slice_.found, number(slice_.last), slice_.now, slice_.shared
        if int(cursor) == 0:
            return
        count = next_count(count, slice_.size, MOST)


# What HINCRBY takes, and has room to go on from.
_COUNT = re.compile(rb"0|(?=.{1,15}\Z)-?[1-9][0-9]*")


def number(text: bytes) -> int:
    """A count as it stands in the store; 0 where it is none to Redis, as ``01``."""
    return int(text) if _COUNT.fullmatch(text) else 0


def _finding(kind: str, task_id: bytes, part: str, field: bytes) -> Finding:
    return Finding(kind, task_id.decode(errors="replace"), part, field)
