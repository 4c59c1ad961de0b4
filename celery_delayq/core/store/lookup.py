"""Steps that read one entry, or its tombstone; the history; and steps about a unique key."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from operator import attrgetter
from typing import Any
from urllib.parse import unquote_to_bytes

from ..clock import from_ms
from ..errors import UnreadableRecord
from .calls import Shard
from .keys import Target, named, target_of
from .record import Extras, Record, time_in
from .scripts import parts_of
from .values import HistoryEntry, Outcome

UNDO_PARTS = ("undo", "undo_old")
MOST_LINES = 1000  # lines that one call counts: some 1 ms of Redis's time

# How an entry left, in the words of `find.lua`.
_LEFT = ("handed_over", "skipped", "cancelled", "uncertain")

# States in the words of `peek.lua`, which users see as another one.
_STATES = {"LAPSED": "IN_FLIGHT", "UNREADABLE": "DEAD"}


NO_RECORD = Record(b"", 0)


class State(str, Enum):
    """The state of an entry."""

    __module__ = "celery_delayq"  # as pickles name it

    SCHEDULED = "SCHEDULED"
    PAUSED = "PAUSED"
    IN_FLIGHT = "IN_FLIGHT"
    DEAD = "DEAD"


@dataclass(frozen=True)
class Facts:
    """What a script tells of an entry beside its record; ``lua/prelude/targets.lua`` has the form.

    Attributes:
        word: Its state, in the script's words; or its place, see ``dump.lua``.
        header_end: Where the header of its record ends; 0 if that cannot be read.
        due_ms: Its due time, if told.
        attempts: How often it was sent, or may have been.
        refusals: How many of these were refused.
        is_uncertain: Whether it may have been delivered.
        next_try_ms: When it is tried again, if its last attempt was refused.
        since_ms: When it became a dead letter.
        paused_by: The pauses that apply, due or not: ``*`` (all), ``q`` (its queue), ``t``.
        behind: The id of the entry that holds its key, if it waits for that one; or empty.
        behind_until_ms: Until when that one holds it at the latest, if it has left.
        late_from_ms: When its grace period starts, if told.
        has_key: Whether it holds its key, if told.
        error: Its last error, if known; of a dead letter, why it is dead.
        why: Why its record cannot be read, if told.
    """

    word: str
    header_end: int = 0
    due_ms: int = 0
    attempts: int = 0
    refusals: int = 0
    is_uncertain: bool = False
    next_try_ms: int | None = None
    since_ms: int | None = None
    paused_by: str = ""
    behind: str = ""
    behind_until_ms: int | None = None
    late_from_ms: int | None = None
    has_key: bool = False
    error: str = ""
    why: str = ""

    @classmethod
    def read(cls, text: bytes) -> Facts:
        """Read a word of a script's answer."""
        word, parts = parts_of(text)
        return cls(
            word,
            header_end=int(parts.get("h", 0)),
            due_ms=int(parts.get("d", 0)),
            attempts=int(parts.get("a", 0)),
            refusals=int(parts.get("r", 0)),
            is_uncertain="m" in parts,
            next_try_ms=time_in(parts.get("n", -1)),
            since_ms=time_in(parts.get("s", -1)),
            paused_by=parts.get("p", ""),
            behind=parts.get("b", ""),
            behind_until_ms=time_in(parts.get("u", -1)),
            late_from_ms=time_in(parts.get("g", -1)),
            has_key="k" in parts,
            error=parts.get("e", ""),
            why=parts.get("w", ""),
        )

    @property
    def state(self) -> State:
        """Its state, as users see it."""
        return State(_STATES.get(self.word, self.word))


@dataclass(frozen=True)
class Entry:
    """An entry as read from the store.

    ``record``: :data:`NO_RECORD` if it cannot be read. ``cursor``: its place in a listing, if read
    in one.
    """

    task_id: str
    facts: Facts
    due_ms: int
    created_ms: int = 0
    message: bytes = b""
    changed_us: int = 0
    extras: Extras = field(default_factory=Extras)
    record: Record = field(default=NO_RECORD, repr=False, compare=False)
    cursor: str = field(default="", compare=False)

    @property
    def state(self) -> State:
        """Its state."""
        return self.facts.state


def entry_of(
    task_id: str, facts: Facts, record: Record, template: bytes | None, cursor: str = ""
) -> Entry:
    """Return an entry from its record and the facts about it.

    Raises:
        UnreadableRecord: the record cannot be read.
    """
    try:
        message = record.message(task_id.encode(), template)
        return entry_with(task_id, facts, record, message, cursor)
    except ValueError as error:
        raise UnreadableRecord(task_id, str(error)) from error


def entry_with(
    task_id: str, facts: Facts, record: Record, message: bytes = b"", cursor: str = ""
) -> Entry:
    """Return an entry from what a record has in each format, and its message, if it was read."""
    return Entry(
        task_id,
        facts,
        record.due_ms,
        record.created_ms,
        message,
        record.changed_us,
        record.extras,
        record,
        cursor,
    )


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
    facts = Facts.read(found.word)
    if facts.word == "unreadable":
        raise UnreadableRecord(named(who), facts.why)
    return found, facts if found.id else None


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
    words = [shard.scripts.call("find", target=target_of(who)).word for shard in shards]
    found = [parts_of(word) for word in words]
    if any(how not in (*_LEFT, "none") for how, _ in found):
        return None
    left = [
        Departure(how, int(parts["t"]), int(parts["n"])) for how, parts in found if how in _LEFT
    ]
    return max(left, key=attrgetter("when_ms"), default=None)


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


def is_undoable(shard: Shard, task_id: str) -> bool:
    """Return whether an undo of an entry that was cancelled is kept in a shard."""
    asked: dict[str, Any] = {"part": "undo", "cursor": 0, "count": 1, "bulk": "", "tells": 0}
    return bool(shard.scripts.call("undoable", **asked, id=task_id).number)


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
                count=MOST_LINES,
                bulk=bulk,
                id="",
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


def holder_of(shard: Shard, key: str) -> KeyHolder | None:
    """Return the holder of a key, or ``None``."""
    state, parts = parts_of(shard.scripts.call("holder", key=key))
    if state == "none":
        return None
    delivery = parts.get("d", "")
    changed = delivery.rpartition(".")[2]
    first, until, left = (time_in(parts.get(name, -1)) for name in ("f", "u", "t"))
    return KeyHolder(
        key,
        parts["i"],
        state,
        until=None if until is None else from_ms(until),
        delivered=None if left is None else from_ms(left),
        changed=from_ms(int(changed) // 1000) if changed.isdigit() else None,
        said_by="" if first is None else "delivery" if first == until else "worker",
        delivery=delivery,
        until_finished="r" in parts,
    )


def free_key(
    shard: Shard, key: str, *, seen: str = "", until: float | None = None
) -> tuple[Outcome, str]:
    """Free a key that an entry which has left still holds.

    Args:
        shard: The key's shard.
        key: The key.
        seen: Free it only if this delivery holds it.
        until: When to give up, by the monotonic clock.

    Returns:
        The outcome, and the id of the entry that held it. ``UNCHANGED``: its holder waits, or is
        another one; ``NOT_FOUND``: nothing holds it.
    """
    (text,) = shard.calls.call("free", until=until, key=key, seen=seen)
    word, *held = text.split(b":")
    return Outcome(_text(word)), _text(unquote_to_bytes(b"".join(held)))


def _text(raw: bytes) -> str:
    return raw.decode(errors="replace")
