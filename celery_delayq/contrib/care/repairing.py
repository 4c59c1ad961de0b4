"""Repairs the findings of a check that still hold.

findings --CHUNK at a time--> repair.lua      checks again and repairs, in one step
         --wrong counts-----> all records are counted again, then recount.lua
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, islice
from operator import attrgetter

from ...core.errors import InvalidOption
from ...core.store.calls import Shard
from ...core.store.entries import Entries
from .checking import COUNTING, Uses
from .inconsistencies import COUNTED, Finding, Repaired

CHUNK = 20  # findings of one step: each may read a record
TEMPLATES = 500  # of one step of a recount


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
