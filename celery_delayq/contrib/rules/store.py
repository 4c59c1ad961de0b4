"""The steps of rules: set, read and fire them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ...core.store import NewEntry
from ...core.store.entries import Entries
from ...core.store.keys import shard_of
from ...core.store.shard import Shard
from .rule import Stored

READ = 100  # rules of one look


@dataclass(frozen=True)
class Run:
    """A run to write: its slot and due time, ms, and its entry; ``None``: the slot is left out."""

    slot: int
    due: int
    entry: NewEntry | None


def shard_for(entries: Entries, name: str, key: str) -> Shard:
    """Return the shard of a rule: that of its key, or else of its name."""
    shards = entries.unasked_shards
    return shards[shard_of(key or name, len(shards))]


def change(shard: Shard, name: str | bytes, what: str, *, digest: str = "", rest: str = "") -> str:
    """Change a rule; return the answer of ``rule.lua``."""
    (answer,) = shard.calls.call("rule", called=name, what=what, digest=digest, rest=rest)
    return str(answer.decode())


def find(entries: Entries, name: str) -> Stored | None:
    """Return the rule of a name, or ``None``."""
    for shard in entries.shards:
        answer = shard.scripts.call("rules", cursor="", count=1, names=[name])
        for row in answer.found:
            return Stored.read(row.name, row.row, shard.number)
    return None


def named(shard: Shard, names: Sequence[bytes]) -> list[Stored]:
    """Return the rules of these names on a shard."""
    answer = shard.scripts.call("rules", cursor="", count=1, names=names)
    found = (Stored.read(row.name, row.row, shard.number) for row in answer.found)
    return [rule for rule in found if rule is not None]


def each(entries: Entries) -> Iterator[Stored]:
    """Yield all rules, in no order; each at least once."""
    for shard in entries.shards:
        cursor: bytes | int = 0
        while True:
            answer = shard.scripts.call("rules", cursor=cursor, count=READ, names=[])
            for row in answer.found:
                rule = Stored.read(row.name, row.row, shard.number)
                if rule is not None:
                    yield rule
            cursor = answer.cursor
            if int(cursor) == 0:
                break


def ahead(shard: Shard) -> tuple[int, int, list[bytes]]:
    """Return Redis's time, us; when to look next, ms, or -1; and the names to look at by now."""
    now_us, look_ms, names = shard.scripts.call("rules_ahead", limit=READ)
    return int(now_us), int(float(look_ms)), names


def fire(shard: Shard, rule: Stored, look_ms: int, runs: Sequence[Run]) -> list[str]:
    """Write runs of a rule; return a word for each, or the one word ``changed``."""
    flat: list[object] = []
    for run in runs:
        flat += (run.slot, run.entry.task_id if run.entry else "", run.due)
        record = run.entry.record if run.entry else None
        flat += (record.destination, record.labels + record.body) if record else ("", "")
        flat.append(record.template if record else "")
    answer = shard.calls.call(
        "fire", called=rule.name, revision=rule.revision, look=look_ms, runs=flat
    )
    return str(answer[0].decode()).split(" ")
