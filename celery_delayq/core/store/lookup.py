"""Steps that read one entry, or its tombstone; the history; and steps about a unique key."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from operator import attrgetter
from typing import Any
from urllib.parse import unquote_to_bytes

from ..clock import from_ms
from ..errors import UnreadableRecord
from .calls import Shard
from .keys import Target, named, target_of
from .record import LAST_MS, Record
from .values import Entry, HistoryEntry, Outcome, State, entry_of, holder_in, letters_in, time_in

UNDO_PARTS = ("undo", "undo_old")
MOST_LINES = 1000  # lines that one call counts: some 1 ms of Redis's time

# How an entry left, in the words of `find.lua`.
_LEFT = (b"handed_over", b"skipped", b"cancelled", b"uncertain")


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


def find(shard: Shard, who: Target, until: float | None = None) -> Entry | None:
    """Return the entry, or ``None``.

    Args:
        shard: The shard.
        who: The entry.
        until: When to give up, by the monotonic clock.

    Raises:
        UnreadableRecord: it is damaged, or has the format of a later release.
    """
    found = _read(shard, who, until)
    if not found:
        return None
    state, task_id, whole, header_end, template, *known = found
    reason, attempts, next_try, since, paused_by, behind = known
    before, until_ms = holder_in(behind)
    return replace(
        entry_of(
            task_id.decode(errors="replace"),
            State(state.decode()),
            Record(whole, header_end),
            template,
        ),
        reason=reason.decode(errors="replace"),
        attempts=attempts,
        next_try_ms=time_in(next_try),
        since_ms=time_in(since),
        paused_by=letters_in(paused_by),
        behind=before,
        behind_until_ms=until_ms,
    )


def state(shard: Shard, who: Target) -> State | None:
    """Return the state of an entry; ``None`` if it is not in the store.

    Raises:
        UnreadableRecord: it is damaged, or has the format of a later release.
    """
    found = _read(shard, who)
    return State(found[0].decode()) if found else None


def departure(shards: Sequence[Shard], who: Target) -> Departure | None:
    """Return how an entry left last; ``None`` if it waits, or its tombstone is gone.

    Args:
        shards: The shards that may have it.
        who: The entry.
    """
    found = [shard.scripts.call("find", target=target_of(who)) for shard in shards]
    if any(row and row[0] not in _LEFT for row in found):
        return None
    left = [Departure(row[0].decode(), *row[1:]) for row in found if row]
    return max(left, key=attrgetter("when_ms"), default=None)


def _read(shard: Shard, who: Target, until: float | None = None) -> Any:
    found = shard.scripts.call("find", until=until, target=target_of(who))
    if found and found[0] == b"unreadable":
        raise UnreadableRecord(named(who), found[1].decode(errors="replace"))
    return [] if found and found[0] in _LEFT else found


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
    state, task_id, *more = shard.scripts.call("holder", key=key) or (b"", b"")
    found = KeyHolder(key, _text(task_id), state.decode())
    if not more:
        return found if state else None
    delivery, ends, first, left, is_for_run = more
    changed = delivery.rpartition(b".")[2]
    return replace(
        found,
        until=from_ms(min(ends, LAST_MS)),
        delivered=None if left < 0 else from_ms(left),
        changed=from_ms(int(changed) // 1000) if changed.isdigit() else None,
        said_by="" if first < 0 else "delivery" if first == ends else "worker",
        delivery=_text(delivery),
        until_finished=bool(is_for_run),
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
