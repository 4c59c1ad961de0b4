"""Values of calls that change the store: outcomes, new entries, what was done, common errors."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from ..clock import MAX_DUE_MS, When, from_ms
from ..errors import DelayQError, InvalidDueTime, KeyHeld
from .record import NewRecord, time_in


class Outcome(str, Enum):
    """The outcome of a cancel, reschedule or edit; only ``DONE`` is true in an ``if``.

    It is also text, as in JSON: ``Outcome.DONE == "done"``.
    """

    __module__ = "celery_delayq"  # as pickles name it

    #: It was done: the entry was still in the store, and the task was not delivered.
    DONE = "done"
    #: Too late: the task was delivered to its queue; nothing was changed.
    HANDED_OVER = "handed_over"
    #: A scanner is publishing it right now; nothing was changed. Ask again shortly.
    IN_FLIGHT = "in_flight"
    #: It was done, but an earlier attempt to publish got no answer from the broker: a copy of
    #: the task may be in its queue.
    UNCERTAIN = "uncertain"
    #: It is due now, but waits behind the task that holds its key until that key is free; of
    #: ``run_now`` only.
    BEHIND = "behind"
    #: No such entry: never scheduled, already cancelled, or delivered too long ago to be known.
    NOT_FOUND = "not_found"
    #: Your condition does not hold (``only=``, ``if_due=``, ``if_revision=``; or the task is not
    #: dead, as ``retry`` and ``remove`` require; or the task that holds a key to ``free`` still
    #: waits); nothing was changed.
    UNCHANGED = "unchanged"

    def __format__(self, spec: str) -> str:
        # Otherwise an f-string has the value before Python 3.12, and the name since then.
        return format(str(self), spec)

    def __bool__(self) -> bool:
        return self is Outcome.DONE


@dataclass(frozen=True)
class Delivery:
    """A message that a broker delivered, and that becomes an entry.

    ``mark``: 16 bytes that name it, however often it is delivered.
    ``again``: any mark proves that it became an entry before; else only a mark that is younger
    than its receipt does.
    ``received``: when it arrived, by the monotonic clock; ``None``: it is running, and makes this
    call now. If it was allowed to run since then, it does not become an entry.
    ``keep_ms``, ``most``: how long its mark is kept, and among how many.
    ``name``: its own name, for a message that stands for it.
    """

    mark: bytes
    again: bool
    received: float | None
    keep_ms: int
    most: int
    name: str = ""


@dataclass(frozen=True)
class NewEntry:
    """An entry to be scheduled.

    ``conflict``: how to resolve it if an entry has its id, or waits under its key; empty: refuse
    the new one. See ``schedule.lua``.
    ``delivery``: the message that it was, if a broker has delivered it.
    ``run``: the delivery whose run goes on with it, and takes its key along; or empty.
    """

    task_id: str
    when: When
    record: NewRecord
    conflict: str = ""
    delivery: Delivery | None = None
    run: str = ""


@dataclass(frozen=True)
class Cancelled:
    """A task that will not run: when that was decided (us, in digits), its message, and why.

    ``when``, ``message``: empty if not requested, or if the message cannot be read.
    ``shard``: where its entry was; there its outbox is.
    """

    task_id: str
    outcome: Outcome
    when: bytes
    message: bytes
    reason: str = "cancelled"
    shard: int = field(default=0, repr=False, compare=False)

    @classmethod
    def of(cls, row: Any, shard: int) -> Cancelled:
        """Read a script's row: ``id``, ``how``, ``when``, ``message`` and ``why``."""
        return cls(
            row.id.decode(errors="replace"),
            Outcome.UNCERTAIN if row.how == b"u" else Outcome.DONE,
            row.when,
            row.message,
            row.why.decode(errors="replace"),
            shard,
        )


@dataclass(frozen=True)
class Change:
    """The result of a call for one target.

    ``outcome``: ``None`` if a selection no longer includes it, or if there is an ``error``.
    ``task_id``: empty if you gave a key, and nothing was done.
    ``due_ms``: its new due time, if it was moved.
    ``expires``: when it expires, in its message's words, if it was moved and its expiry was not.
    ``cancelled``: details, if it was removed.
    """

    outcome: Outcome | None
    task_id: str
    due_ms: int | None = None
    expires: str = ""
    cancelled: Cancelled | None = None
    error: DelayQError | None = None


@dataclass(frozen=True)
class Receipt:
    """The answer to scheduling: the entry that now waits, and its due time.

    ``existed``: the new entry was not written; this is the existing one.
    ``cancelled``: tasks that will not run because of it: replaced ones, or the new one itself.
    ``operation``: the name of the call; ``shard``: where it was made.
    ``replicas``: how many replicas have it, if the call waited for them.
    """

    task_id: str
    due_ms: int
    existed: bool = False
    cancelled: tuple[Cancelled, ...] = ()
    operation: bytes = field(default=b"", repr=False, compare=False)
    shard: int = field(default=0, repr=False, compare=False)
    replicas: int | None = None


def key_held(task_id: str, holder: str, ends: str = "") -> KeyHeld:
    """Return the error for a key that is held until *ends*, ms, if that is known."""
    return KeyHeld(task_id, holder, from_ms(time_in(ends) or 0) if ends else None)


def too_late(when: When) -> InvalidDueTime:
    """Return the error for a due time beyond the store's range."""
    return InvalidDueTime(when.given, f"a time before {from_ms(MAX_DUE_MS):%Y-%m-%d}")
