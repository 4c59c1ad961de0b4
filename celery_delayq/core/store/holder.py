"""Steps about a unique key: who holds it, and to free it from an entry that has left."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from urllib.parse import unquote_to_bytes

from ..clock import from_ms
from .outcome import Outcome
from .record import LAST_MS
from .shard import Shard


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
