"""Finds the inconsistencies in a store, and repairs them.

    records <----> due, relay, refused,          one place to a record, one record to a place
       |           parked, leased, dead
       |       <-- claims, errors                only of existing entries
       |<--------> tags, holders                 each tag and key of a record, and no other
    templates <--> template_uses                 the number of records that share one
    outbox <-----> outbox_messages               each has the other
    meta                                         no record has a later number than the last

Each slice is one atomic step that reads both sides, so moving entries are consistent. Only the
counts of templates span slices: see :class:`Uses`. Data in generations (tombstones, fences,
answers, marks of messages) has no other side, and is deleted with its generation. The step that
repairs a finding checks it again first.

A script that Redis stops half-way leaves too much, not too little: a place, key or tag of an entry
that is gone, two places of one entry, a count too high. Missing data was deleted from outside,
evicted or damaged. So repair removes surplus data, and restores missing data from the record. A
task that may have been delivered before is not delivered by a repair, unless marked: it is dead.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, islice
from operator import attrgetter
from typing import Any

from ...core.errors import InvalidOption
from ...core.services import HasServices, Services
from ...core.store.calls import Shard
from ...core.store.entries import Entries
from ...core.store.membership import check_types
from ...core.store.selection import FIRST, next_count
from ...core.text import logger_of, plain

logger = logger_of(__name__)

MOST = 200  # fields of a slice: some 3 ms
CHUNK = 20  # findings of one step: each may read a record
TEMPLATES = 500  # of one step of a recount

_INDEXES = ("due", "relay", "leased", "dead", "refused", "behind", "parked", "tags", "outbox")
_HASHES = ("claims", "errors", "holders", "outbox_messages", "meta")
# The keys about templates; records last, so that those that leave meanwhile are not counted.
COUNTING = ("templates", "records")


@dataclass(frozen=True)
class Kind:
    """A kind of finding.

    Attributes:
        wrong: The inconsistency and its effect.
        repair: The repair; empty if it is only reported.
    """

    wrong: str
    repair: str = ""


KINDS = {
    "record_without_place": Kind(
        "a record waits nowhere, or is parked although nothing is paused, so it will not be "
        "delivered",
        "it waits again for its due time; marked, if it was being published; skipped, if its "
        "grace period is over; dead, with the reason, if it had failed or may have been delivered",
    ),
    "place_without_record": Kind(
        "a place has no record; at its due time it is dropped or dead; a dead one cannot be "
        "restored",
        "the place is removed",
    ),
    "second_place": Kind(
        "a second place of one record, which a later step drops",
        "it is removed; the record keeps its lease, or else the place where it waits",
    ),
    "unreadable_record": Kind(
        "a record that this version cannot read, or whose template is gone or damaged; it will be "
        "dead at its due time, unless a process that schedules its task stores the template again"
    ),
    "wrong_key": Kind(
        "a unique key names a task that is not here or has another key; or a record waits without "
        "its key, so its key does not find it; or it waits behind another task, and no step looks "
        "whether that still holds its key",
        "the name is removed; the record gets its key back, unless another task has it by then; "
        "or it waits until the key is free",
    ),
    "wrong_tag": Kind(
        "a tag names a task that is not here or does not have it; or a record has a tag by which "
        "no selection finds it",
        "the tag is removed; the record's tag finds it again",
    ),
    "wrong_count": Kind(
        "a template's count is too low, so it may be deleted before its last record; or too high, "
        "so it stays after the last one; or is no number, so no task that shares it can be "
        "scheduled",
        "the count is corrected, and the template deleted if no record shares it; a count that is "
        "too high is corrected only while nothing is scheduled",
    ),
    "owed_revoked": Kind(
        "REVOKED must be stored for a cancelled task, but the time or the message is missing",
        "a scanner stores it now; an item without a message, or with a new task's id, is removed",
    ),
    "number_too_low": Kind(
        "the last insertion number is no number, so nothing can be scheduled; or is lower than a "
        "record's, so selections and dumps skip that record",
        "numbering continues above all numbers in use",
    ),
    "leftover": Kind(
        "a claim or an error is left of a task that is not here; a new task with its id would get "
        "it",
        "it is removed",
    ),
}

# Kinds that concern a whole shard, of which only one finding is reported.
ONCE = ("number_too_low",)

# The kind that no single step can see: finding and repairing it needs a count of all records.
COUNTED = "wrong_count"


@dataclass(frozen=True)
class Finding:
    """An inconsistency in the store.

    Attributes:
        kind: One of :data:`KINDS`.
        id: The task's id; or a template's name, in hexadecimal digits; or a unique key; or ``seq``,
            the last insertion number.
        part: The key of the store in which it was found.
        at: The field or member there, as stored.
        shard: The number of the shard.
    """

    kind: str
    id: str
    part: str = field(default="", repr=False)
    at: bytes = field(default=b"", repr=False)
    shard: int = field(default=0, repr=False)

    @property
    def sentence(self) -> str:
        """The inconsistency and its effect."""
        return KINDS[self.kind].wrong

    @property
    def repair(self) -> str:
        """The repair; empty if it is only reported."""
        return KINDS[self.kind].repair

    @property
    def tag(self) -> str | None:
        """The tag that is left, if the finding is about one."""
        is_tag = self.part == "tags"
        return self.at.partition(b"\0")[0].decode(errors="replace") if is_tag else None

    def __str__(self) -> str:
        tag = "" if self.tag is None else f" (tag {plain(self.tag)})"
        return f"{plain(self.id)}: {self.sentence}{tag}"


@dataclass(frozen=True)
class Repaired:
    """The result of repairing a finding.

    Attributes:
        what: ``done``; ``back``: the task waits again; ``late``: it does, but will be skipped, as
            its grace period is over; ``dead``; ``lost``: its place was removed, as its record is
            gone; ``gone``: another step had changed it, so nothing was done; ``left``: there is no
            repair for its kind.
        reason: Why the task is dead.
    """

    finding: Finding
    what: str
    reason: str = ""

    def __bool__(self) -> bool:
        """Whether the finding is resolved."""
        return self.what != "left"


def check(delayq: HasServices) -> Iterator[Finding]:
    """The inconsistencies of the store, read slice by slice as you iterate.

    It changes nothing, and ignores operations in progress. It can find a template that counts
    too many records only while no task is scheduled.

    Returns:
        Findings with ``kind``, ``id``, ``sentence`` and ``repair``: the action of
        :meth:`repair` in words, or empty. No findings if the store is consistent.
    """
    return check_store(delayq.services.entries)


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


def repair_store(entries: Entries, findings: Iterable[Finding]) -> Iterator[list[Repaired]]:
    """Repair findings; those of a shard that follow each other share steps.

    Yields the results of each step; those for a shard's counts at its end.

    Raises:
        InvalidOption: a finding names a shard that does not exist.
    """
    shards = entries.shards
    for number, some in groupby(findings, attrgetter("shard")):
        if not 0 <= number < len(shards):
            raise InvalidOption("finding", number, "one that this store's check gave")
        yield from _repair(shards[number], some)


def _repair(shard: Shard, findings: Iterable[Finding]) -> Iterator[list[Repaired]]:
    rest = iter(findings)
    counted: dict[bytes, list[Finding]] = {}
    while some := list(islice(rest, CHUNK)):
        for finding in some:
            if finding.kind == COUNTED:
                counted.setdefault(finding.at, []).append(finding)
        yield [Repaired(finding, "left") for finding in some if not finding.repair]
        yield _mended(
            shard, [finding for finding in some if finding.repair and finding.kind != COUNTED]
        )
    if counted:
        done = _recounted(shard, counted)
        yield [
            Repaired(one, "done" if name in done else "gone")
            for name, each in counted.items()
            for one in each
        ]


def _mended(shard: Shard, findings: Sequence[Finding]) -> list[Repaired]:
    if not findings:
        return []
    flat = [word for finding in findings for word in (finding.kind, finding.part, finding.at)]
    words = shard.scripts.call("repair", findings=flat)
    parts = [word.decode(errors="replace").partition(" ") for word in words]
    return [
        Repaired(finding, what, reason)
        for finding, (what, _, reason) in zip(findings, parts, strict=True)
    ]


def _recounted(shard: Shard, counted: dict[bytes, list[Finding]]) -> set[bytes]:
    """Count all records again, and correct these templates; return those that were wrong."""
    seen, _ = shard.scripts.call("recount", seen="", own="", counts=[])
    uses = Uses(shard, counted.keys())
    for part in COUNTING:
        for _ in uses.find(part):
            pass  # check reports these
    own, done, wrong = os.urandom(8).hex(), set(), iter(uses.wrong())
    while some := list(islice(wrong, TEMPLATES)):
        flat = [word for finding in some for word in finding.arguments]
        _, words = shard.scripts.call("recount", seen=seen, own=own, counts=flat)
        done |= {finding.name for finding, word in zip(some, words, strict=True) if word == b"done"}
    return done


def repair(delayq: HasServices, finding: Finding) -> Repaired:
    """Repair a finding of :meth:`check` if it still holds; change nothing else.

    The repairing step checks the finding again first. To repair a template's count, it reads
    all records.

    Args:
        finding: A finding from this app's store.

    Returns:
        An object whose ``what`` is one of: ``done``; ``back``: the task waits again; ``dead``,
        with the ``reason``; ``lost``: its record was gone, and its place is now removed;
        ``gone``: the problem no longer existed, and nothing was done; ``left``: not repairable,
        only reported. It is false only for ``left``.

    Raises:
        InvalidOption: it is not a finding.
    """
    if not isinstance(finding, Finding):
        raise InvalidOption("finding", finding, "one that check gave")
    (repaired,) = (each for some in repair_many(delayq.services, [finding]) for each in some)
    return repaired


def repair_many(services: Services, findings: Iterable[Finding]) -> Iterator[list[Repaired]]:
    """Repair findings, some in each step; yield the results of each step."""
    for some in repair_store(services.entries, findings):
        for repaired in some:
            _tell(services, repaired)
        yield some


def _tell(services: Services, repaired: Repaired) -> None:
    """Log the effect on a task, and call the hooks."""
    if repaired.what == "dead":
        logger.error("task %s is dead: %s", repaired.finding.id, repaired.reason)
        services.hooks.dead(repaired.finding.id, repaired.reason)
    elif repaired.what == "back":
        logger.info("task %s waits again, as its lost place was restored", repaired.finding.id)
    elif repaired.what == "late":
        logger.warning(
            "task %s had lost its place and will be skipped as too late", repaired.finding.id
        )
    elif repaired.what == "lost":
        logger.error(
            "task %s is lost: it had no record, so its place was removed", repaired.finding.id
        )
