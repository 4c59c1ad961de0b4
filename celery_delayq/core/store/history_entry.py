"""One event of the history, as a script wrote it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum


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
