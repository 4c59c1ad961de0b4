"""One event of the history, as a script wrote it."""

from __future__ import annotations

from dataclasses import dataclass
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


@dataclass(frozen=True)
class HistoryEntry:
    """One event of the history; ``lua/prelude/history.lua`` has its layout.

    ``labels``: of task and queue, as in the record. They and the due time are ``None`` if the
    record could not be read.
    """

    what: What
    when_ms: int
    due_ms: int | None
    labels: tuple[bytes, bytes] | None
    task_id: str
    key: str

    @classmethod
    def read(cls, event: bytes) -> HistoryEntry:
        """Read an event that a script wrote.

        Raises:
            ValueError: another program wrote it.
        """
        due, id_end = event[14:27].strip(), 42 + int(event[39:42])
        if event[:1] not in _WHAT:
            raise ValueError(f"no event begins with {event[:1]!r}")
        return cls(
            _WHAT[event[:1]],
            int(event[1:14]),
            int(due) if due else None,
            (event[27:33], event[33:39]) if due else None,
            event[42:id_end].decode(errors="replace"),
            event[id_end:].decode(errors="replace"),
        )


_WHAT = {
    b"s": What.SCHEDULED,
    b"h": What.HANDED_OVER,
    b"c": What.CANCELLED,
    b"r": What.REPLACED,
    b"k": What.SKIPPED,
    b"d": What.DEAD,
    b"b": What.REPAIRED,
}
