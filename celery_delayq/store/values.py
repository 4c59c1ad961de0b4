"""What the store is given, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Any, NamedTuple

from .. import clock
from ..clock import EPOCH, MAX_DUE_MS, When, from_ms
from ..errors import DelayQError, InvalidDueTime, UnreadableRecord
from .extras import Extras
from .lateness import lateness_of
from .outcome import Outcome
from .record import LAST_MS, NewRecord, Record

NO_RECORD = Record(b"", 0)


def time_in(score: float | bytes | str) -> int | None:
    """A time that a script told, in ms, but none that no calendar has; ``None`` for -1."""
    ms = float(score)
    return int(min(ms, LAST_MS)) if ms >= 0 else None


def letters_in(word: bytes | str) -> str:
    """By what an entry is paused, as a script told: first letters of lanes, or nothing."""
    text = word.decode(errors="replace") if isinstance(word, bytes) else word
    return "" if text == "-" else text


class State(str, Enum):
    """Where an entry stands."""

    SCHEDULED = "SCHEDULED"
    PAUSED = "PAUSED"
    IN_FLIGHT = "IN_FLIGHT"
    DEAD = "DEAD"


@dataclass(frozen=True)
class Entry:
    """An entry as read from the store.

    ``reason``: what went wrong with it last, if it is known; of a dead one, why it is dead.
    ``attempts``: how often it was sent, or may have been.
    ``next_try_ms``: of one whose last attempt was refused; ``since_ms``: since when it is dead.
    ``paused_by``: what of it is paused, be it due or not: ``*`` (all), ``q`` (its queue), ``t``.
    ``cursor``: where it stands in a listing, if it was read in one.
    """

    task_id: str
    state: State
    due_ms: int
    created_ms: int
    message: bytes
    reason: str = ""
    changed_us: int = 0
    extras: Extras = field(default_factory=Extras)
    attempts: int = 0
    next_try_ms: int | None = None
    since_ms: int | None = None
    paused_by: str = ""
    record: Record = field(default=NO_RECORD, repr=False, compare=False)
    cursor: str = field(default="", compare=False)


def entry_of(
    task_id: str, state: State, record: Record, template: bytes | None, **known: Any
) -> Entry:
    """An entry as it is read; *known* is what its record does not say.

    Raises:
        UnreadableRecord: it cannot be.
    """
    try:
        message = record.message(task_id.encode(), template)
        return Entry(
            task_id,
            state,
            record.due_ms,
            record.created_ms,
            message,
            changed_us=record.changed_us,
            extras=record.extras,
            record=record,
            **known,
        )
    except ValueError as error:
        raise UnreadableRecord(task_id, str(error)) from error


@dataclass(frozen=True)
class Delivery:
    """A message that a broker delivered, and that becomes an entry.

    ``mark``: 16 bytes that name it, however often it is delivered.
    ``again``: any mark says that it became an entry before; else only one that is younger than
    its receipt.
    ``received``: when that was, by the monotonic clock; ``None``: it runs, and asks for this now.
    If it was let through to run since then, it does not become an entry.
    ``keep_ms``, ``most``: for how long its mark is known, and among how many.
    """

    mark: bytes
    again: bool
    received: float | None
    keep_ms: int
    most: int


@dataclass(frozen=True)
class NewEntry:
    """An entry to be scheduled.

    ``conflict``: what becomes of it where an entry has its id, or waits under its key; empty: it is
    refused. See ``schedule.lua``.
    ``delivery``: the message that it was, if a broker has delivered it.
    """

    task_id: str
    when: When
    record: NewRecord
    conflict: str = ""
    delivery: Delivery | None = None


def too_late(when: When) -> InvalidDueTime:
    """The error of a due time that the store does not keep."""
    return InvalidDueTime(when.given, f"what ends before {from_ms(MAX_DUE_MS):%Y-%m-%d}")


@dataclass(frozen=True)
class Cancelled:
    """A task that will not run: when that was settled (us in digits), its message, and why.

    ``when``, ``message``: empty where they were not wanted, or the message cannot be read.
    """

    task_id: str
    outcome: Outcome
    when: bytes
    message: bytes
    reason: str = "cancelled"

    @classmethod
    def of(cls, row: Any) -> Cancelled:
        """What a script tells of one: ``id``, ``how``, ``when``, ``message`` and ``why``."""
        return cls(
            row.id.decode(errors="replace"),
            Outcome.UNCERTAIN if row.how == b"u" else Outcome.DONE,
            row.when,
            row.message,
            row.why.decode(errors="replace"),
        )


@dataclass(frozen=True)
class Change:
    """What a call made of one target.

    ``outcome``: ``None`` where a selection does not mean it any more, or there is an ``error``.
    ``task_id``: empty where a key was given, and nothing was done.
    ``due_ms``: its new due time, where it was moved.
    ``expires``: when it expires, as its message says it, where it was moved and that did not.
    ``cancelled``: what there is to tell; only where it was removed.
    """

    outcome: Outcome | None
    task_id: str
    due_ms: int | None = None
    expires: str = ""
    cancelled: Cancelled | None = None
    error: DelayQError | None = None


@dataclass(frozen=True)
class Receipt:
    """What scheduling answers: which entry now waits, and until when.

    ``existed``: the new one was not written; this is the one that stays.
    ``cancelled``: who will not run because of it: what was replaced, or the new one itself.
    ``operation``: the name of the call that was answered so.
    ``replicas``: how many have it, where that was waited for.
    """

    task_id: str
    due_ms: int
    existed: bool = False
    cancelled: tuple[Cancelled, ...] = ()
    operation: bytes = field(default=b"", repr=False, compare=False)
    replicas: int | None = None


@dataclass(frozen=True)
class Seen:
    """What one call of ``hand_over`` did and saw; times in ms, ``None`` where there is no head.

    ``back``: when an entry comes back to wait that waits for another reason than its due time.
    ``has_timer``: this scanner is to be up for the earliest head; the others may sleep on.
    ``dead``: (task id, reason) of each that became a dead letter.
    ``refused``: (reason, how many) of what its list refused, and waits to be tried again.
    ``skipped``: (task id, why) of each that was too late to leave.
    ``ids``: of what was handed over, if they were wanted.
    ``late``: how many seconds late each of these was, if that was wanted.
    ``read_at``: this process's monotonic clock when Redis's showed ``now_us``, in seconds.
    """

    now_us: int
    handed_over: int
    due: int | None
    relay: int | None
    leased: int | None
    back: int | None
    has_timer: bool
    dead: list[tuple[str, str]]
    read_at: float
    refused: list[tuple[str, int]] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    late: list[float] = field(default_factory=list)

    def seconds_until(self, head: int | None) -> float | None:
        """Seconds from now until *head* by Redis's clock, at most 0 when it is past."""
        if head is None:
            return None
        return (head * 1000 - self.now_us) / 1_000_000 - (clock.monotonic() - self.read_at)

    def is_past(self, head: int | None) -> bool:
        return head is not None and head * 1000 <= self.now_us


@dataclass(frozen=True)
class LeasedEntry:
    """An entry under a lease, and what was made of it so far.

    ``attempts`` were made at it, ``refusals`` of them ended in a no of the broker;
    ``uncertain``: of some it is not known how they ended.
    ``ahead``: Unix time by Redis's clock, less this process's monotonic one, in seconds.
    """

    token: str
    member: bytes
    record: Record
    template: bytes | None
    attempts: int
    refusals: int
    uncertain: int
    ahead: float

    @property
    def task_id(self) -> str:
        return self.member[6:].decode(errors="replace")

    @property
    def destination(self) -> str:
        return self.record.destination

    @property
    def message(self) -> bytes:
        """The message to be published, put together anew at each call.

        Raises:
            ValueError: the record cannot be read.
        """
        return self.record.message(self.member[6:], self.template)

    def seconds_until(self, moment: datetime) -> float:
        """From now by Redis's clock; that of this machine may be wrong."""
        return (moment - EPOCH).total_seconds() - self.ahead - clock.monotonic()

    @property
    def late(self) -> float:
        """How many seconds late it is by now, by Redis's clock."""
        return lateness_of(self.record, (self.ahead + clock.monotonic()) * 1_000_000)

    @property
    def hand_over(self) -> str:
        """Names this hand-over of the task, all attempts at it.

        A task that is scheduled anew under its id, or a retry, has an insertion number of its own;
        one that was changed, another time of its last change.
        """
        return f"{int.from_bytes(self.member[:6], 'big')}.{self.record.changed_us}"

    @property
    def is_first(self) -> bool:
        """Whether no attempt was made at it before."""
        return not self.attempts


class Claimed(NamedTuple):
    """What one claim did.

    ``entries`` are leased; ``dead``: (task id, reason) of each that became a dead letter;
    ``skipped``: (task id, why) of each that was too late to leave; so many ``parked``, as paused.
    """

    entries: list[LeasedEntry]
    dead: list[tuple[str, str]]
    skipped: list[tuple[str, str]]
    parked: int

    @property
    def met(self) -> int:
        """How many due entries it dealt with."""
        return len(self.entries) + len(self.dead) + len(self.skipped) + self.parked

    def and_of(self, other: Claimed) -> Claimed:
        """The same of two claims."""
        return Claimed(
            self.entries + other.entries,
            self.dead + other.dead,
            self.skipped + other.skipped,
            self.parked + other.parked,
        )
