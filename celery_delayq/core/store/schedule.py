"""The step that schedules entries.

An ``Addition``, made at the face, travels whole to ``schedule``. Behind it stand the arguments of
the script, which only this module knows, and how its words are read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Union
from urllib.parse import unquote_to_bytes

from .. import clock
from ..clock import MAX_DUE_MS
from ..errors import (
    AlreadyDead,
    AlreadyScheduled,
    AlreadyTaken,
    DelayQError,
    InFlight,
    StoreUnavailable,
)
from .calls import Shard, new_operation
from .values import Cancelled, Delivery, NewEntry, Receipt, key_held, too_late

SENT_AT_MOST = 1000  # names of sent templates that a process remembers
MAX_BYTES = 1_000_000  # of existing entries in conflict with those of one step

# Answers of ``schedule.lua`` if something is in the way.
_IN_THE_WAY: Mapping[bytes, Callable[..., AlreadyScheduled]] = {
    b"scheduled": AlreadyScheduled,
    b"held": key_held,
    b"dead": AlreadyDead,
    b"leased": InFlight,
    b"taken": AlreadyTaken,
}

Answer = Union[Receipt, DelayQError]


@dataclass(frozen=True, kw_only=True)
class Addition:
    """Add new entries.

    Attributes:
        supersede: The caller is this very task, running. An entry with its id is replaced if it may
            have been delivered; one still in the store is another task, and stays.
        revokes: For which tasks to note that ``REVOKED`` must be stored: ``none``; ``replaced``
            ones; or ``all``: also for a new entry that gives way to another, if its id was already
            given out.
        tells: Whether to return the messages of tasks that give way, also with ``none``.
        unless_left: Add nothing under a key whose tombstone is kept: its task was delivered,
            skipped or cancelled. The receipt then names no existing one.
        until: When to give up, by the monotonic clock; after ``delayq_timeout`` at the latest.
        pauses: Seconds before each repetition while Redis cannot be reached.
    """

    supersede: bool = False
    revokes: str = "none"
    tells: bool = True
    unless_left: bool = False
    until: float = math.inf
    pauses: Iterable[float] = ()

    @property
    def owes(self) -> bool:
        """Whether ``REVOKED`` must be stored."""
        return self.revokes != "none"


PLAIN = Addition()


def schedule(shard: Shard, what: Addition, new: Sequence[NewEntry]) -> list[Answer]:
    """Schedule entries of a shard, all in one step of Redis; the caller limits their number.

    Returns:
        For each a receipt, or the reason why it was not scheduled: ``AlreadyScheduled`` (the entry
        with its id or key is untouched), ``InFlight``, or ``InvalidDueTime`` (past 2255-06-05).
    """
    answers: list[Answer | None] = [None] * len(new)
    left = list(range(len(new)))
    while left:
        replies = _ask(shard, what, [new[place] for place in left])
        for place, answer in zip(left, replies, strict=True):
            answers[place] = answer
        left = [place for place in left if answers[place] is None]
        if left and clock.monotonic() >= what.until:
            # Others changed the conflicting entries each time, or those exceed MAX_BYTES.
            for place in left:
                answers[place] = StoreUnavailable("schedule", "it took too long", False)
            break
    return [answer for answer in answers if answer is not None]


def _ask(shard: Shard, what: Addition, new: Sequence[NewEntry]) -> list[Answer | None]:
    # A template that this process has sent before is usually in the store. Leave it out, unless
    # there are many entries.
    known: Container[bytes] = shard.templates if len(new) == 1 else ()
    operation, first = new_operation(), new[0].delivery

    def arguments(known: Container[bytes]) -> list[Any]:
        return _arguments(new, known, lambda moment: shard.calls.time_of(moment, what.until))

    text, *more = shard.calls.call(
        "schedule",
        operation=operation,
        until=what.until,
        pauses=what.pauses,
        whole=lambda: {"entries": arguments(())},
        supersede=int(what.supersede),
        revokes=what.revokes,
        tells=int(what.tells),
        unless_left=int(what.unless_left),
        latest=MAX_DUE_MS,
        max_bytes=MAX_BYTES,
        keep_ms=first.keep_ms if first else 0,
        most_marks=first.most if first else 0,
        entries=arguments(known),
    )
    if len(shard.templates) < SENT_AT_MOST:
        shard.templates |= {name for entry in new if (name := entry.record.name)}
    cancelled = (Cancelled.of(row, shard.number) for rows in more for row in rows)
    owed = {entry.task_id: entry for entry in cancelled}
    words = zip(text.split(b" "), new, strict=True)
    return [_read(word, entry, owed, operation, shard.number) for word, entry in words]


def _arguments(
    new: Sequence[NewEntry], known: Container[bytes], time_of: Callable[[float], int]
) -> list[Any]:
    """Return entries' fields in ``schedule.lua``'s order; each template once, or not if *known*."""
    flat: list[Any] = []
    sent: set[bytes] = set()
    for entry in new:
        record, name = entry.record, entry.record.name
        template = b"" if name in known or name in sent else record.template
        if name is not None:
            sent.add(name)
        when, body = entry.when, record.labels + record.body
        conflict, _, max_wait = entry.conflict.partition(" ")
        flat += (entry.task_id, when.mode, when.us, record.header, body, template)
        flat += (conflict or "reject", max_wait, entry.run)
        flat += _marked(entry.delivery, time_of) if entry.delivery else ("", "", "")
    return flat


def _marked(delivery: Delivery, time_of: Callable[[float], int]) -> tuple[bytes, int, int]:
    received = 0 if delivery.received is None else time_of(delivery.received)
    return delivery.mark, int(delivery.again), received


def _read(
    word: bytes, new: NewEntry, owed: dict[str, Cancelled], operation: bytes, shard: int
) -> Answer | None:
    """Return the answer for one entry; ``None`` if you must ask again."""
    status, *others = word.split(b":")
    ids = [unquote_to_bytes(other).decode(errors="replace") for other in others]
    if status == b"again":
        return None
    if status in _IN_THE_WAY:
        return _IN_THE_WAY[status](new.task_id, *ids)
    if status == b"late":
        return too_late(new.when)
    if status == b"kept":
        (due_ms, stays), mine = ids, owed.get(new.task_id)
        return Receipt(stays, int(due_ms), True, (mine,) if mine else (), operation, shard)
    replaced = tuple(owed[task_id] for task_id in ids if task_id in owed)
    return Receipt(new.task_id, int(status), False, replaced, operation, shard)
