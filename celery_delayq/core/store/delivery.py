"""From due to delivered: deliver, claim, ack, nack, reclaim; and which copy of a message is first.

Which delivery of a relayed task reached a worker first:

    delivery, attempt 1 -----> worker    marked: 1
    the same, attempt 2 -----> worker    1 was first: a duplicate
    the same, attempt 1 -----> worker    1 was first: the broker redelivers it

Which message became an entry of the store, so that it becomes one only once:

    adopted, put off --------> store     marked by the script that writes the entry
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
from typing import Any

from .. import clock
from ..errors import StoreUnavailable
from ..hooks import IDS, LATENESS
from ..servers.endpoint import Address
from ..servers.risks import Line, risks
from .calls import Shard
from .changes import mark_stored
from .counts import Counts, Pause, counts_in, pauses_in
from .keys import shard_of
from .membership import Membership, Registration
from .record import Record
from .scripts import Scripts
from .values import Cancelled, Claimed, Delivery, LeasedEntry, Seen, lateness_in


class Copies:
    """Answers a worker whose message may be one of several copies.

    Args:
        shards: The scripts of each shard. The mark of a delivery is in its task's shard, the
            mark of a message in the shard of its entry.
        keep: Seconds after which a copy may still come: a lease, or a visibility timeout.
        remember: How many seconds longer marks are kept, and how many in each shard.
    """

    def __init__(self, shards: Sequence[Scripts], keep: float, remember: Sequence[Any]) -> None:
        seconds, self._most = remember
        self._shards = shards
        self._keep_ms = round((seconds + keep) * 1000)

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


MAX_BYTES = 1_000_000  # of messages per script call: some 2 ms of Redis's time
CHUNK = 200  # entries per call of claim, ack and nack: some 3 ms
GONE_AFTER = 3  # sleeps without a heartbeat before a scanner counts as gone
HEARTBEATS = 6  # sent in the time for which one counts
MAX_REFUSALS = 8  # after these an entry is dead
OWED = 100  # cancelled tasks taken from the outbox at a time
OWED_FOR = 60.0  # seconds in which no other scanner gets them
LONGEST_WAIT = 300.0  # seconds between two attempts at a refused entry


class ScannerSteps:
    """A scanner's steps with one shard of the store.

    Args:
        scripts: The shard's, over a connection of the scanner's own.
        membership: This process's settings.
        batch_size: The most entries that one step delivers.
        lease: Seconds for which a claim holds.
        alive: Seconds for which a heartbeat counts at least.
        name: The scanner's; the same for each of its shards.
        catch_up: The most overdue entries delivered per second, by all scanners in all shards.
        owes: Whether ``REVOKED`` must be stored for tasks that are too late.
        meeting_place: The keys common to all numbers of shards, as in :class:`Shard`.
    """

    def __init__(
        self,
        scripts: Scripts,
        membership: Membership,
        *,
        batch_size: int,
        lease: float,
        alive: float,
        name: str | None = None,
        catch_up: float | None = None,
        owes: bool = False,
        meeting_place: Registration | None = None,
    ) -> None:
        self.name = name or new_name()
        self._scripts = scripts
        self._shard = Shard(scripts, membership, scanner=True, meeting_place=meeting_place)
        self._batch_size = batch_size
        self._lease_ms = round(lease * 1000)
        self._alive = alive
        self._catch_up = (catch_up or 0) / membership.shards
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
        asked = clock.monotonic()
        beats = asked >= self._beat_again
        alive = max(self._alive, asleep * GONE_AFTER)
        reply = self._scripts.call(
            "hand_over",
            scanner=self.name,
            store=self._shard.calls.store,
            alive_ms=round(alive * 1000) if beats else 0,
            limit=self._batch_size,
            max_bytes=MAX_BYTES,
            max_refusals=MAX_REFUSALS,
            longest_ms=round(LONGEST_WAIT * 1000),
            asleep_ms=math.ceil(asleep * 1000),
            relay_ms=math.ceil(relay_in * 1000),
            catch_up=self._catch_up,
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
            self._beat_again = asked + alive / HEARTBEATS
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
        asked = clock.monotonic()
        reply = self._scripts.call(
            "claim",
            asker=asker,
            lease_ms=self._lease_ms,
            limit=limit,
            max_bytes=MAX_BYTES,
            catch_up=self._catch_up,
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
        ids = self._scripts.call("reclaim", limit=self._batch_size, max_bytes=MAX_BYTES)
        return [task_id.decode(errors="replace") for task_id in ids]

    def owed(self) -> list[Cancelled]:
        """Return cancelled tasks whose ``REVOKED`` is overdue; for a while, only we get them."""
        owed = self._scripts.call(
            "owed", limit=OWED, max_bytes=MAX_BYTES, wait_ms=round(OWED_FOR * 1000)
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
        [late for text in reply.lateness for late in lateness_in(text, reply.now)],
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
