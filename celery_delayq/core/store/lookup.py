"""One entry, or how it left; the history; entries that an undo can bring back; holders of keys."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import Enum
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple
from urllib.parse import unquote_to_bytes

from ..clock import from_ms
from ..errors import UnreadableRecord
from ..threads import gather
from .calls import Shard
from .keys import Target, named, target_of
from .record import Entry, Facts, Record, State, entry_of, facts_in, parts_of, time_in
from .values import Outcome

UNDO_PARTS = ("undo", "undo_old")
_MOST_LINES = 1000  # lines that one call counts: some 1 ms of Redis's time
_MOST_KEYS = 200  # keys that one call looks up: some 2 ms of Redis's time
_NO_RECORD = Record(b"", 0)
_KEYED_BYTES = 1_000_000  # of their records

# How an entry left, in the words of `find.lua`.
_LEFT = ("handed_over", "skipped", "cancelled", "uncertain")


def find(shard: Shard, who: Target, until: float | None = None) -> Entry | None:
    """Return the entry, or ``None``.

    Args:
        shard: The shard.
        who: The entry.
        until: When to give up, by the monotonic clock.

    Raises:
        UnreadableRecord: it is damaged, or has the format of a later release.
    """
    found, facts = _read(shard, who, until)
    if facts is None:
        return None
    record = Record(found.record, facts.header_end)
    return entry_of(found.id.decode(errors="replace"), facts, record, found.template)


def state(shard: Shard, who: Target) -> State | None:
    """Return the state of an entry; ``None`` if it is not in the store.

    Raises:
        UnreadableRecord: it is damaged, or has the format of a later release.
    """
    _, facts = _read(shard, who)
    return None if facts is None else facts.state


def _read(shard: Shard, who: Target, until: float | None = None) -> tuple[Any, Facts | None]:
    """Return the answer of ``find.lua``, and the facts of an entry that is there."""
    found = shard.scripts.call("find", until=until, target=target_of(who))
    if found.word.startswith(b"unreadable"):
        raise UnreadableRecord(named(who), parts_of(found.word)[1]["w"])
    return found, facts_in(found.word) if found.id else None


@dataclass(frozen=True)
class Keyed:
    """What has a unique key.

    Attributes:
        word: Its state, or what else ``keyed.lua`` says.
        now_ms: Redis's time of this answer.
        task_id, facts, record, template: Of an entry that can be read.
    """

    word: str
    now_ms: int
    task_id: str = ""
    facts: Facts = field(default_factory=partial(Facts, ""))
    record: Record = _NO_RECORD
    template: bytes | None = None

    @property
    def entry(self) -> Entry:
        """The whole entry.

        Raises:
            UnreadableRecord: its message cannot be put together.
        """
        return entry_of(self.task_id, self.facts, self.record, self.template)


def keyed(shard: Shard, keys: Sequence[str]) -> Iterator[Keyed]:
    """Yield what has each of some keys of a shard, in their order."""
    left = list(keys)
    while left:
        some = left[:_MOST_KEYS]
        reply = shard.scripts.call("keyed", max_bytes=_KEYED_BYTES, names=some)
        templates, entries = dict(reply.templates), iter(reply.found)
        words = [parts_of(word) for word in reply.words.split()]
        for said, parts in words:
            if "h" not in parts and said != "again":
                yield Keyed(said, reply.now // 1000)
            elif said != "again":
                facts, row = Facts.of(said, parts), next(entries)
                record = Record(row.record, facts.header_end)
                template = templates.get(record.name) if record.name else None
                task_id = row.id.decode(errors="replace")
                yield Keyed(said, reply.now // 1000, task_id, facts, record, template)
        left = left[sum(said != "again" for said, _ in words) :]


@dataclass(frozen=True)
class Departure:
    """How and when an entry left.

    Attributes:
        how: ``handed_over``; ``skipped``: it was too late; ``cancelled``; or ``uncertain``:
            cancelled, but a copy may have been delivered.
        when_ms: When it left, by Redis's clock.
        now_ms: Redis's time of this answer.
    """

    how: str
    when_ms: int
    now_ms: int


def departure(shards: Sequence[Shard], who: Target) -> Departure | None:
    """Return how an entry left last; ``None`` if it waits, or its tombstone is gone.

    Args:
        shards: The shards that may have it.
        who: The entry.
    """
    finds = (partial(shard.scripts.call, "find", target=target_of(who)) for shard in shards)
    found = [parts_of(answer.word) for answer in gather(*finds)]
    if any(how not in (*_LEFT, "none") for how, _ in found):
        return None
    left = [
        Departure(how, int(parts["t"]), int(parts["n"])) for how, parts in found if how in _LEFT
    ]
    return max(left, key=attrgetter("when_ms"), default=None)


class What(str, Enum):
    """The kind of event."""

    SCHEDULED = "scheduled"
    HANDED_OVER = "handed_over"
    CANCELLED = "cancelled"
    REPLACED = "replaced"
    SKIPPED = "skipped"
    DEAD = "dead"
    REPAIRED = "repaired"
    RESCHEDULED = "rescheduled"
    EDITED = "edited"
    RUN_NOW = "run_now"
    RETRIED = "retried"
    REMOVED = "removed"
    UNDONE = "undone"
    PAUSED = "paused"
    RESUMED = "resumed"


@dataclass(frozen=True)
class HistoryEntry:
    """One event of the history; ``lua/prelude/history.lua`` has its layout.

    ``labels``: of task and queue, as in the record. They and the due time are ``None`` if the
    record could not be read. ``actor``: who did it, or empty. ``lane``: q or t and a name, of a
    pause. ``count``: of how many entries; 0 of a lane. ``bulk``: the name of the change of many
    that it is, or of which it is a part; or empty.
    """

    what: What
    when_ms: int
    due_ms: int | None
    labels: tuple[bytes, bytes] | None
    task_id: str
    key: str
    actor: str = ""
    lane: str = ""
    count: int = 1
    bulk: str = ""

    def with_parts_of(self, other: HistoryEntry) -> HistoryEntry:
        """Return a line of a change with the number of another one of the same change."""
        when_ms = max(self.when_ms, other.when_ms)
        return replace(self, when_ms=when_ms, count=self.count + other.count)

    @classmethod
    def read(cls, event: bytes) -> HistoryEntry:
        """Read an event that a script wrote.

        Raises:
            ValueError: another program wrote it.
        """
        due, id_end = event[14:27].strip(), 42 + int(event[39:42])
        if event[:1] not in _WHAT:
            raise ValueError(f"no event begins with {event[:1]!r}")
        key, _, rest = event[id_end:].partition(b"\0")
        actor, count, bulk = (*rest.split(b"\0"), b"", b"")[:3]
        is_lane = event[:1] in b"pu"
        return cls(
            _WHAT[event[:1]],
            int(event[1:14]),
            int(due) if due else None,
            (event[27:33], event[33:39]) if due else None,
            event[42:id_end].decode(errors="replace"),
            "" if is_lane else key.decode(errors="replace"),
            actor.decode(errors="replace"),
            key.decode(errors="replace") if is_lane else "",
            0 if is_lane else int(count or 1),
            bulk.decode(errors="replace"),
        )


def added_up(lines: Iterable[HistoryEntry]) -> list[HistoryEntry]:
    """Return lines of changes, with one for each change of many; it has parts in each shard."""
    found: dict[object, HistoryEntry] = {}
    for line in lines:
        name = (line.what, line.bulk, line.actor) if line.bulk else len(found)
        other = found.get(name)
        found[name] = line if other is None else line.with_parts_of(other)
    return list(found.values())


_WHAT = {
    b"s": What.SCHEDULED,
    b"h": What.HANDED_OVER,
    b"c": What.CANCELLED,
    b"r": What.REPLACED,
    b"k": What.SKIPPED,
    b"d": What.DEAD,
    b"b": What.REPAIRED,
    b"m": What.RESCHEDULED,
    b"e": What.EDITED,
    b"n": What.RUN_NOW,
    b"t": What.RETRIED,
    b"x": What.REMOVED,
    b"o": What.UNDONE,
    b"p": What.PAUSED,
    b"u": What.RESUMED,
}

#: The letter of each kind in an event.
LETTERS = {what: letter for letter, what in _WHAT.items()}


def history(
    shard: Shard, events: int, changes: int, parts: int
) -> tuple[int, list[list[HistoryEntry]]]:
    """Return how many the store keeps, and a shard's events, lines and parts, newest first.

    See ``history.lua``.
    """
    most, *found = shard.scripts.call("history", events=events, changes=changes, parts=parts)
    return most, [[*_readable(some)] for some in found]


def _readable(events: Sequence[bytes]) -> Iterator[HistoryEntry]:
    for event in events:
        with suppress(ValueError):  # another program's
            yield HistoryEntry.read(event)


@dataclass(frozen=True)
class Kept:
    """An entry that was cancelled, and that an undo can bring back.

    Attributes:
        entry: The entry as it was.
        when_ms: When it was cancelled.
        bulk: The name of the change of many that cancelled it; or empty.
    """

    entry: Entry
    when_ms: int
    bulk: str


def kept(shard: Shard, task_id: str) -> Kept | None:
    """Return an entry that was cancelled; ``None`` if no undo of it is kept, or it is damaged."""
    found = shard.scripts.call("kept", id=task_id)
    if found.when is None:
        return None
    facts = facts_in(found.word)
    record = Record(found.record, facts.header_end)
    with suppress(UnreadableRecord):
        entry = entry_of(task_id, facts, record, found.template)
        return Kept(entry, int(found.when) // 1000, _text(found.bulk).removeprefix("-"))
    return None


def undoable(shard: Shard, bulk: str) -> tuple[int, int | None]:
    """Count a shard's entries of a bulk; see :meth:`Entries.undoable`."""
    kept, left = 0, -1
    for part in UNDO_PARTS:
        cursor: bytes | int = b""
        while cursor != b"0":
            cursor, left, number, _ = shard.scripts.call(
                "undoable",
                part=part,
                cursor=cursor or 0,
                count=_MOST_LINES,
                bulk=bulk,
                tells=0,
            )
            kept += number
    return kept, None if left < 0 else left


@dataclass(frozen=True)
class KeyHolder:
    """The task that holds a unique key; times by Redis's clock.

    Attributes:
        key: The key.
        id: The id of the task that holds it.
        state: ``waits``: the task waits; ``in_flight``: a scanner is publishing it right now;
            ``left``: it was delivered or skipped, and holds its key on. Only then there is more.
        until: When the key is free at the latest.
        delivered: When the task was delivered or skipped; ``None`` if the store forgot.
        changed: When the task was scheduled, or changed last.
        said_by: Who set that end: ``delivery``; or ``worker``, in its last word about the run;
            empty if the store forgot.
        delivery: The name of the delivery.
        until_finished: Whether it is held until the task's run has finished; false if the store
            forgot, too.
        behind: The id of the task that waits behind it, and gets the key next; or empty.
        behind_due: When that task is due.
    """

    key: str
    id: str
    state: str
    until: datetime | None = None
    delivered: datetime | None = None
    changed: datetime | None = None
    said_by: str = ""
    delivery: str = ""
    until_finished: bool = False
    behind: str = ""
    behind_due: datetime | None = None


def holder_of(shard: Shard, key: str) -> KeyHolder | None:
    """Return the holder of a key, or ``None``."""
    asked: dict[str, Any] = {"begins": "", "beyond": "", "score": "", "count": 1, "most": 1}
    return next(map(_holder, shard.scripts.call("held", key=key, **asked).found), None)


class HeldKeys(NamedTuple):
    """Some of a shard's keys that are held on, or have an entry behind their holder.

    Attributes:
        found: Their holders.
        last: The last key that was looked at, and its time in ``held``; ``None`` at the end.
    """

    found: list[KeyHolder]
    last: tuple[str, str] | None


def held_keys(
    shard: Shard, begins: str, last: tuple[str, str] | None, count: int, most: int
) -> HeldKeys:
    """Return the next keys of a shard that are held on, those first that may be free first.

    Args:
        shard: The shard.
        begins: How they begin.
        last: Where the part before ended.
        count: How many keys to look at.
        most: The most to return.
    """
    key, score = last or ("", "")
    asked: dict[str, Any] = {"key": "", "begins": begins, "beyond": key, "score": score}
    at, when, found = shard.scripts.call("held", **asked, count=count, most=most)
    return HeldKeys([*map(_holder, found)], (_text(at), _text(when)) if at else None)


def _holder(row: Any) -> KeyHolder:
    state, parts = parts_of(row.word)
    delivery = parts.get("d", "")
    changed = delivery.rpartition(".")[2]
    first, until, left = (time_in(parts.get(name, -1)) for name in ("f", "u", "t"))
    return KeyHolder(
        _text(row.key),
        parts["i"],
        state,
        until=None if until is None else from_ms(until),
        delivered=None if left is None else from_ms(left),
        changed=from_ms(int(changed) // 1000) if changed.isdigit() else None,
        said_by="" if first is None else "delivery" if first == until else "worker",
        delivery=delivery,
        until_finished="r" in parts,
        behind=parts.get("b", ""),
        behind_due=from_ms(int(parts["n"])) if "n" in parts else None,
    )


def free_key(shard: Shard, key: str, seen: str) -> tuple[Outcome, str]:
    """Free a key that an entry which has left still holds.

    Args:
        shard: The key's shard.
        key: The key.
        seen: The only delivery from which to free it; empty: from any.

    Returns:
        The outcome, and the id of the entry that held it. ``UNCHANGED``: its holder waits, or is
        another one; ``NOT_FOUND``: nothing holds it.
    """
    (text,) = shard.calls.call("free", key=key, seen=seen)
    word, *held = text.split(b":")
    return Outcome(_text(word)), _text(unquote_to_bytes(b"".join(held)))


def _text(raw: bytes) -> str:
    return raw.decode(errors="replace")
