"""Values that the store takes and returns: outcomes, events of the history, lateness, entries."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import Enum
from typing import Any, NamedTuple

from .. import clock
from ..clock import EPOCH, MAX_DUE_MS, When, from_ms
from ..errors import DelayQError, InvalidDueTime, KeyHeld
from .record import DUE, FLAGS, NewRecord, Record, time_in


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


TIMES_BYTES = FLAGS - DUE  # of a record: due time, time of scheduling, last change


def lateness_in(times: bytes, now_us: int) -> list[float]:
    """Return seconds, at least 0, for each record whose times ``hand_over`` returned."""
    # A record without the part before its times.
    records = (Record(times, at - DUE) for at in range(0, len(times), TIMES_BYTES))
    return [lateness_of(record, now_us) for record in records]


def lateness_of(record: Record, now_us: float) -> float:
    """Return the lateness of one record in seconds, at least 0."""
    return max(0.0, (now_us - max(record.due_ms * 1000, record.changed_us)) / 1_000_000)


def key_held(task_id: str, holder: str, ends: str = "") -> KeyHeld:
    """Return the error for a key that is held until *ends*, ms, if that is known."""
    return KeyHeld(task_id, holder, from_ms(time_in(ends) or 0) if ends else None)


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


def too_late(when: When) -> InvalidDueTime:
    """Return the error for a due time beyond the store's range."""
    return InvalidDueTime(when.given, f"a time before {from_ms(MAX_DUE_MS):%Y-%m-%d}")


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


@dataclass(frozen=True)
class Seen:
    """The result of one call of ``hand_over``; times in ms, ``None`` if an index has no head.

    ``back``: when the first entry may come back that waits for another reason than its due time.
    ``has_timer``: this scanner must wake for the earliest head; the others may sleep on.
    ``dead``, ``skipped``: (task id, why) of each that became a dead letter, or was too late.
    ``refused``: (reason, how many) of entries that their list refused; they are tried again.
    ``ids``: of delivered tasks, if requested.
    ``late``: how many seconds late each of these was, if requested.
    ``scanners``: how many are alive, if the call was a heartbeat; else 0.
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
    scanners: int = 0

    def seconds_until(self, head: int | None) -> float | None:
        """Return seconds from now until *head* by Redis's clock, at most 0 if it is past."""
        if head is None:
            return None
        return (head * 1000 - self.now_us) / 1_000_000 - (clock.monotonic() - self.read_at)

    def is_past(self, head: int | None) -> bool:
        return head is not None and head * 1000 <= self.now_us


@dataclass(frozen=True)
class LeasedEntry:
    """An entry under a lease, and its attempts so far.

    ``attempts``: all of them; the broker declined ``refusals`` of these, and ``uncertain`` of them
    ended in an unknown way.
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
        """The message to publish, put together anew at each call.

        Raises:
            ValueError: the record cannot be read.
        """
        return self.record.message(self.member[6:], self.template)

    def seconds_until(self, moment: datetime) -> float:
        """Return seconds from now, by Redis's clock; this machine's may be wrong."""
        return (moment - EPOCH).total_seconds() - self.ahead - clock.monotonic()

    @property
    def late(self) -> float:
        """How many seconds late it is now, by Redis's clock."""
        return lateness_of(self.record, (self.ahead + clock.monotonic()) * 1_000_000)

    @property
    def hand_over(self) -> str:
        """Identifies this delivery of the task, with all its attempts.

        A task that is scheduled again under its id, or retried, has another insertion number; a
        changed one has another time of its last change.
        """
        return f"{int.from_bytes(self.member[:6], 'big')}.{self.record.changed_us}"

    @property
    def hold(self) -> dict[str, Any]:
        """The header of a task whose key is held until its run has finished; or empty."""
        extras = self.record.extras
        if not extras.is_until_finished:
            return {}
        header = {"id": self.task_id, "key": extras.key, "delivery": self.hand_over}
        return {**header, "ms": extras.unique_ms}

    @property
    def is_first(self) -> bool:
        """Whether there was no attempt before."""
        return not self.attempts


class Claimed(NamedTuple):
    """The result of one claim.

    ``entries`` are leased; ``dead`` and ``skipped`` as in :class:`Seen`; ``parked``: how many.
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
        """Return the sum of two claims."""
        return Claimed(
            self.entries + other.entries,
            self.dead + other.dead,
            self.skipped + other.skipped,
            self.parked + other.parked,
        )
