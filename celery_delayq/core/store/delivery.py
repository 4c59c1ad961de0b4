"""From due to delivered: the steps of a scanner; and which copy of a message came first.

First what a step tells its scanner: what a hand-over saw, and what a claim leased. Then the steps
with one shard: deliver, claim, ack, nack, reclaim. Behind them ``Copies``, which workers ask.

    delivery, attempt 1 -----> worker    marked: 1
    the same, attempt 2 -----> worker    1 was first: a duplicate
    the same, attempt 1 -----> worker    1 was first: the broker redelivers it
    adopted, put off --------> store     marked by the script that writes the entry: once
    redelivered -------------> worker    it was taken: nothing is left to do
    another one redelivered -> worker    marked: it runs. A request of its first worker that is
                                         still under way makes no entry any more

A mark is kept for at least one generation: the seconds of ``delayq_remember``, plus a lease or the
broker's visibility timeout, not counting pauses of more than a minute; or as many marks as tasks
in that setting, 85 bytes each. There are two generations.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import os
import socket
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from .. import clock
from ..clock import EPOCH
from ..errors import StoreUnavailable
from ..hooks import IDS, LATENESS
from ..servers.endpoint import Address
from ..servers.risks import Line, risks
from ..settings import Settings
from .calls import Shard
from .changes import mark_stored
from .counts import Counts, Pause, counts_in, pauses_in
from .keys import shard_of
from .membership import Membership, Registration
from .record import DUE, FLAGS, Record
from .scripts import Scripts
from .values import Cancelled, Delivery

MAX_BYTES = 1_000_000  # of messages per script call: some 2 ms of Redis's time
CHUNK = 200  # entries per call of claim, ack and nack: some 3 ms
GONE_AFTER = 3  # sleeps without a heartbeat before a scanner counts as gone
_HEARTBEATS = 6  # sent in the time for which one counts
MAX_REFUSALS = 8  # after these an entry is dead
OWED = 100  # cancelled tasks taken from the outbox at a time
_OWED_FOR = 60.0  # seconds in which no other scanner gets them
LONGEST_WAIT = 300.0  # seconds between two attempts at a refused entry


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
        return _lateness_of(self.record, (self.ahead + clock.monotonic()) * 1_000_000)

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
        if not extras.until_finished:
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


class ScannerSteps:
    """A scanner's steps with one shard of the store.

    Args:
        scripts: The shard's, over a connection of the scanner's own.
        membership: What this process says of its app and broker.
        name: The scanner's; the same for each of its shards.
        owes: Whether ``REVOKED`` must be stored for tasks that are too late.
        meeting_place: The keys common to all numbers of shards, as in :class:`Shard`.
    """

    def __init__(
        self,
        scripts: Scripts,
        membership: Membership,
        *,
        name: str | None = None,
        owes: bool = False,
        meeting_place: Registration | None = None,
    ) -> None:
        self.name = name or new_name()
        self._scripts = scripts
        self._shard = Shard(scripts, membership, scanner=True, meeting_place=meeting_place)
        self._owes = int(owes)
        self._joined = False
        self._beat_again = 0.0
        self._handed_over_ms = self._claimed_ms = 0  # Redis's time of the last such step
        self._claims = itertools.count(1)

    @property
    def node(self) -> Address | None:
        """The address of the shard's Redis; ``None`` if it must be looked up."""
        return self._scripts.connection.node

    def meet(self) -> None:
        """Register at the meeting place; see :meth:`Shard.meet`."""
        self._shard.meet()

    def join(self) -> None:
        """Register with the store, unless that is done.

        Raises:
            StoreDiffers: other processes use the store with different settings.
        """
        if not self._joined:
            self._shard.calls.join(step="hand_over")
            self._joined = True

    def risks(self) -> list[Line]:
        """Return how the store's Redis may lose waiting tasks, or refuse new ones."""
        return risks(self._scripts.connection)

    def counts(self) -> Counts:
        """Return the counts of the shard's entries."""
        # A thousand scanners that come back at once must not count each other.
        return counts_in(self._shard, living=False)

    def pauses(self) -> list[Pause]:
        """Return the lanes of the shard that are paused or coming back."""
        return pauses_in(self._shard)

    def hand_over(self, *, asleep: float = 0.0, relay_in: float = 0.0, wants: int = 0) -> Seen:
        """Deliver one batch of the entries bound for lists in the store's own Redis.

        Args:
            asleep: The longest that the caller then sleeps, in seconds. With 0 it promises nothing,
                and new tasks wake other scanners.
            relay_in: Seconds until it looks at the entries for the broker; 0: now.
            wants: The wanted details of delivered tasks: 1 ids, 2 lateness, 3 both; 0 none.

        Raises:
            StoreDiffers: other processes use the store with different settings.
        """
        self.join()
        asked, settings = clock.monotonic(), self._scripts.settings
        beats = asked >= self._beat_again
        alive = max(settings.safety_interval, asleep) * GONE_AFTER
        reply = self._scripts.call(
            "hand_over",
            scanner=self.name,
            store=self._shard.calls.store,
            alive_ms=round(alive * 1000) if beats else 0,
            limit=settings.batch_size,
            max_bytes=MAX_BYTES,
            max_refusals=MAX_REFUSALS,
            longest_ms=round(LONGEST_WAIT * 1000),
            asleep_ms=math.ceil(asleep * 1000),
            relay_ms=math.ceil(relay_in * 1000),
            catch_up=_rate(settings),
            owes=self._owes,
            tells_ids=int(bool(wants & IDS)),
            tells_times=int(bool(wants & LATENESS)),
            last_ms=self._handed_over_ms,
            since_ms=self._shard.registration.joined_ms,
        )
        if reply.handed_over is None:
            # The store was emptied, and other processes may have joined it since; or another Redis
            # took over.
            self._joined = False
            return self.hand_over(asleep=asleep, relay_in=relay_in, wants=wants)
        self._handed_over_ms = reply.now // 1000
        if beats:
            self._beat_again = asked + alive / _HEARTBEATS
        # Assume that Redis read its clock half-way. To count from the answer would make every wait
        # late by half a round trip, which is most of a scanner's lateness.
        return _seen(reply, read_at=(asked + clock.monotonic()) / 2)

    def claim(self, limit: int) -> Claimed:
        """Take up to *limit* due entries: lease each that may be delivered now."""
        claimed, last_ms = Claimed([], [], [], 0), self._claimed_ms
        while claimed.met < limit:
            wanted = min(CHUNK, limit - claimed.met)
            try:
                some = self._claim(wanted, last_ms)
            except StoreUnavailable:
                if not claimed.met:
                    raise
                break
            claimed = claimed.and_of(some)
            if some.met < wanted:
                break
        return claimed

    def _claim(self, limit: int, last_ms: int) -> Claimed:
        asker = f"{self.name}:{next(self._claims)}"
        asked, settings = clock.monotonic(), self._scripts.settings
        reply = self._scripts.call(
            "claim",
            asker=asker,
            lease_ms=round(settings.lease * 1000),
            limit=limit,
            max_bytes=MAX_BYTES,
            catch_up=_rate(settings),
            owes=self._owes,
            last_ms=last_ms,
        )
        self._claimed_ms = reply.now // 1000
        ahead = reply.now / 1_000_000 - (asked + clock.monotonic()) / 2
        token, templates = f"{asker}:{reply.now}", dict(reply.templates)
        claimed = []
        for row, known in zip(reply.claimed, reply.known, strict=True):
            record = Record(row.record, int(known.header_end))
            template = templates.get(record.name)
            counts = int(known.attempts), int(known.refusals), int(known.uncertain)
            claimed.append(LeasedEntry(token, row.member, record, template, *counts, ahead))
        return Claimed(claimed, _texts(reply.dead), _texts(reply.skipped), reply.parked)

    def ack(self, claimed: Iterable[LeasedEntry]) -> int:
        """Remove entries that the broker confirmed; return how many this scanner still held."""
        return sum(
            self._scripts.call("ack", token=token, members=members)
            for token, members in _chunks(claimed)
        )

    def nack(
        self,
        verdict: str,
        claimed: Iterable[LeasedEntry],
        *,
        wait: float = 0,
        uncertain: bool = False,
        reason: str = "",
    ) -> int:
        """Give entries back, or make them dead; return how many this scanner still held.

        Args:
            verdict: See ``nack.lua``.
            wait: Seconds until the next attempt, if it was refused.
            uncertain: Whether a queue may have it although it was refused.
            reason: The reason, if it is refused or dead.
        """
        return sum(
            self._scripts.call(
                "nack",
                token=token,
                verdict=verdict,
                wait_ms=round(wait * 1000),
                uncertain=int(uncertain),
                reason=reason,
                members=members,
            )
            for token, members in _chunks(claimed)
        )

    def reclaim(self) -> list[str]:
        """Take back expired leases; return the ids."""
        ids = self._scripts.call(
            "reclaim", limit=self._scripts.settings.batch_size, max_bytes=MAX_BYTES
        )
        return [task_id.decode(errors="replace") for task_id in ids]

    def owed(self) -> list[Cancelled]:
        """Return cancelled tasks whose ``REVOKED`` is overdue; for a while, only we get them."""
        owed = self._scripts.call(
            "owed", limit=OWED, max_bytes=MAX_BYTES, wait_ms=round(_OWED_FOR * 1000)
        )
        return [Cancelled.of(row, self._shard.number) for row in owed]

    def mark_stored(self, cancelled: Iterable[Cancelled]) -> set[str]:
        """As :func:`changes.mark_stored`."""
        return mark_stored(self._shard, cancelled)

    def go_on_as(self, name: str) -> None:
        """Take another name; the next step brings its first heartbeat."""
        self.name = name
        self._beat_again = 0.0

    def leave(self) -> None:
        """Stop counting as a live scanner."""
        self._scripts.call("leave", scanner=self.name)

    def close(self) -> None:
        """Close the connection to Redis."""
        self._scripts.connection.close()


def _rate(settings: Settings) -> float:
    """Return how many overdue entries may leave a shard per second, by all scanners; 0: any."""
    return (settings.catch_up or 0) / settings.shards


def new_name() -> str:
    """Return a unique name for a scanner, which starts with its host and process id."""
    return f"{socket.gethostname()}:{os.getpid()}:{os.urandom(4).hex()}"


def restarted(name: str, times: int) -> str:
    """Return the name of a scanner whose thread was started again so many times."""
    return f"{name}-{times}"


def _seen(reply: Any, *, read_at: float) -> Seen:
    return Seen(
        reply.now,
        reply.handed_over,
        _head(reply.due),
        _head(reply.relay),
        _head(reply.leased),
        _head(reply.back),
        bool(reply.has_timer),
        _texts(reply.dead),
        read_at,
        [(row.why.decode(errors="replace"), row.times) for row in reply.refused],
        _texts(reply.skipped),
        [task_id.decode(errors="replace") for ids in reply.ids for task_id in ids],
        [late for text in reply.lateness for late in _lateness_in(text, reply.now)],
        reply.scanners,
    )


def _head(ms: int) -> int | None:
    return None if ms < 0 else ms


def _texts(rows: Iterable[Any]) -> list[tuple[str, str]]:
    return [(row.id.decode(errors="replace"), row.why.decode(errors="replace")) for row in rows]


def _chunks(claimed: Iterable[LeasedEntry]) -> Iterator[tuple[str, list[bytes]]]:
    for token, entries in itertools.groupby(claimed, lambda entry: entry.token):
        members = [entry.member for entry in entries]
        for start in range(0, len(members), CHUNK):
            yield token, members[start : start + CHUNK]


_TIMES_BYTES = FLAGS - DUE  # of a record: due time, time of scheduling, last change


def _lateness_in(times: bytes, now_us: int) -> list[float]:
    """Return seconds, at least 0, for each record whose times ``hand_over`` returned."""
    # A record without the part before its times.
    records = (Record(times, at - DUE) for at in range(0, len(times), _TIMES_BYTES))
    return [_lateness_of(record, now_us) for record in records]


def _lateness_of(record: Record, now_us: float) -> float:
    """Return the lateness of one record in seconds, at least 0."""
    return max(0.0, (now_us - max(record.due_ms * 1000, record.changed_us)) / 1_000_000)


class Copies:
    """Answers a worker whose message may be one of several copies.

    Args:
        shards: The scripts of each shard. The mark of a delivery is in its task's shard, the
            mark of a message in the shard of its entry.
        visibility_timeout: Seconds after which the broker may redeliver a message.
    """

    def __init__(self, shards: Sequence[Scripts], visibility_timeout: float) -> None:
        self._shards = shards
        settings = shards[0].settings
        seconds, self._most = settings.remember
        # A copy may still come after a lease, or after a visibility timeout.
        self._keep_ms = round((seconds + max(settings.lease, visibility_timeout)) * 1000)

    def first(self, hand_over: tuple[str, ...], attempt: int, until: float) -> int:
        """Return the attempt that reached a worker first; *attempt*, if there was none before.

        Args:
            hand_over: Texts that together name one delivery of one task; the task's id is first.
            attempt: The attempt that has arrived.
            until: When to give up, by the monotonic clock.

        Raises:
            StoreError: the first attempt is not known.
        """
        shard = shard_of(hand_over[0], len(self._shards))
        return self._arrive(self._shards[shard], hand_over, attempt, until)

    def delivery(
        self, message: tuple[str, ...], *, again: bool, received: float | None = None
    ) -> Delivery:
        """Describe a message that is to become an entry, once; see :class:`Delivery`.

        Args:
            message: Texts that together name it; the task's id is first.
            again: Whether it may have been delivered before, or its name is certainly unique.
            received: When it arrived, by the monotonic clock; since then the broker may have
                redelivered it to another worker. By default now; with *again*, none, for then its
                running task makes the call.
        """
        if received is None and not again:
            received = clock.monotonic()
        mark = _mark(("taken", *message))
        return Delivery(mark, again, received, self._keep_ms, self._most, message[1])

    def is_taken(self, message: tuple[str, ...], until: float) -> bool:
        """Return whether a redelivered message became an entry before; if not, it may run.

        If it may run, a late request of its earlier worker (which may have died) makes no entry.

        Raises:
            StoreError: it is not known.
        """
        # An entry with a key may be in any shard.
        firsts = (self._arrive(shard, ("taken", *message), 0, until) for shard in self._shards)
        return any(first == 0 for first in firsts)

    def _arrive(self, scripts: Scripts, texts: tuple[str, ...], attempt: int, until: float) -> int:
        first: int = scripts.call(
            "arrive",
            until=until,
            mark=_mark(texts),
            attempt=attempt,
            keep_ms=self._keep_ms,
            most=self._most,
        )
        return first


def _mark(texts: tuple[str, ...]) -> bytes:
    # Of one size, however long the id is.
    return hashlib.sha256(repr(texts).encode()).digest()[:16]
