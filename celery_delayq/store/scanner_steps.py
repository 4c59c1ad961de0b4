"""The scanner's steps: hand over, claim, ack, nack, reclaim."""

from __future__ import annotations

import itertools
import math
import os
import socket
from collections.abc import Iterable, Iterator
from typing import Any

from .. import clock
from ..errors import StoreUnavailable
from ..servers.risks import Line, risks
from .changes import mark_stored
from .lateness import lateness_in
from .member import Membership
from .overview import Counts, Pause, counts_in, pauses_in
from .record import Record
from .scripts import Scripts
from .shard import Shard
from .values import Cancelled, Claimed, LeasedEntry, Seen

MAX_BYTES = 1_000_000  # of messages per script call: some 2 ms of Redis's time
CHUNK = 200  # entries per call of claim, ack and nack: some 3 ms
HEARTBEATS = 6  # that a scanner gives in the time for which one counts
MAX_REFUSALS = 8  # after which an entry is dead
OWED = 100  # cancelled tasks that are taken from the outbox at a time
OWED_FOR = 60.0  # seconds for which no other scanner is given them
LONGEST_WAIT = 300.0  # seconds between two attempts at an entry that was refused


class ScannerSteps:
    """What a scanner does with one shard of the store.

    Args:
        scripts: The shard's, over a connection of the scanner's own.
        membership: What this process has of what all agree on.
        batch_size: Most entries that one step hands over.
        lease: Seconds for which a claim holds.
        alive: Seconds for which a heartbeat counts.
        name: The scanner's; the same for each of its shards.
        catch_up: How many overdue entries leave a second at most, over all scanners and shards.
        owes: Whether ``REVOKED`` is to be stored for what is too late to leave.
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
    ) -> None:
        self.name = name or new_name()
        self._scripts = scripts
        self._link = Shard(scripts, membership, scanner=True)
        self._batch_size = batch_size
        self._lease_ms = round(lease * 1000)
        self._alive = alive
        self._catch_up = (catch_up or 0) / membership.shards
        self._owes = int(owes)
        self._joined = False
        self._beat_again = 0.0
        self._handed_over_ms = self._claimed_ms = 0  # when it did so last, by Redis's clock
        self._claims = itertools.count(1)

    def join(self) -> None:
        """Become known to the store, if that is still to be done.

        Raises:
            StoreDiffers: this process would use the store in another way than the others.
        """
        if not self._joined:
            self._link.calls.join(step="hand_over")
            self._joined = True

    def risks(self) -> list[Line]:
        """How the store's Redis may lose what waits, or refuse it."""
        return risks(self._scripts.connection)

    def counts(self) -> Counts:
        """All counts of the shard."""
        return counts_in(self._link)

    def pauses(self) -> list[Pause]:
        """What is paused in the shard, or comes back."""
        return pauses_in(self._link)

    def hand_over(self, *, asleep: float = 0.0, relay_in: float = 0.0, tells: int = 0) -> Seen:
        """Hand over one batch of what is bound for lists in the store's own Redis.

        Args:
            asleep: For how many seconds the caller sleeps at most, before it asks again. With 0 it
                promises nothing: other scanners are told of what is scheduled.
            relay_in: In how many seconds it will look at what goes through the broker, if not now.
            tells: What is wanted of what is handed over: 1 ids, 2 how late it was, 3 both.

        Raises:
            StoreDiffers: this process would use the store in another way than the others.
        """
        self.join()
        asked = clock.monotonic()
        beats = asked >= self._beat_again
        reply = self._scripts.call(
            "hand_over",
            scanner=self.name,
            alive_ms=round(self._alive * 1000) if beats else 0,
            limit=self._batch_size,
            max_bytes=MAX_BYTES,
            max_refusals=MAX_REFUSALS,
            longest_ms=round(LONGEST_WAIT * 1000),
            asleep_ms=math.ceil(asleep * 1000),
            relay_ms=math.ceil(relay_in * 1000),
            catch_up=self._catch_up,
            owes=self._owes,
            tells=int(tells),
            last_ms=self._handed_over_ms,
        )
        if reply.handed_over is None:
            # The store was emptied, or another Redis took over.
            self._joined = False
            return self.hand_over(asleep=asleep, relay_in=relay_in, tells=tells)
        self._handed_over_ms = reply.now // 1000
        if beats:
            self._beat_again = asked + self._alive / HEARTBEATS
        # Redis looked at its clock half-way, as far as one can tell: counting from the answer would
        # make every wait late by half a round trip, which is most of a scanner's lateness.
        return _seen(reply, read_at=(asked + clock.monotonic()) / 2)

    def claim(self, limit: int) -> Claimed:
        """Deal with up to *limit* due entries: lease them, unless something is in the way."""
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
        for one, known in zip(reply.claimed, reply.known, strict=True):
            record = Record(one.record, int(known.header_end))
            template = templates.get(record.name)
            counts = int(known.attempts), int(known.refusals), int(known.uncertain)
            claimed.append(LeasedEntry(token, one.member, record, template, *counts, ahead))
        return Claimed(claimed, _texts(reply.dead), _texts(reply.skipped), reply.parked)

    def ack(self, claimed: Iterable[LeasedEntry]) -> int:
        """Forget what the broker confirmed; returns how many were still ours."""
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
        """Give back, or declare dead; returns how many were still ours.

        Args:
            verdict: See ``nack.lua``.
            wait: Seconds until the next attempt, where it was refused.
            uncertain: Whether some queue may have it although it was refused.
            reason: Why, where it is refused or dead.
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
        """Take back leases that ran out; returns the ids."""
        ids = self._scripts.call("reclaim", limit=self._batch_size, max_bytes=MAX_BYTES)
        return [task_id.decode(errors="replace") for task_id in ids]

    def owed(self) -> list[Cancelled]:
        """Cancelled tasks whose ``REVOKED`` nobody has stored in time; for a while, ours alone."""
        owed = self._scripts.call(
            "owed", limit=OWED, max_bytes=MAX_BYTES, wait_ms=round(OWED_FOR * 1000)
        )
        return [Cancelled.of(one) for one in owed]

    def mark_stored(self, cancelled: Iterable[Cancelled]) -> None:
        """Note that ``REVOKED`` was stored for tasks."""
        mark_stored(self._link, cancelled)

    def leave(self) -> None:
        """Stop counting as alive."""
        self._scripts.call("leave", scanner=self.name)

    def close(self) -> None:
        """Let go of the connection to Redis."""
        self._scripts.connection.close()


def new_name() -> str:
    """A scanner's name: where it runs, and what no other has."""
    return f"{socket.gethostname()}:{os.getpid()}:{os.urandom(4).hex()}"


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
        [(one.why.decode(errors="replace"), one.times) for one in reply.refused],
        _texts(reply.skipped),
        [task_id.decode(errors="replace") for ids in reply.ids for task_id in ids],
        [late for text in reply.lateness for late in lateness_in(text, reply.now)],
    )


def _head(ms: int) -> int | None:
    return None if ms < 0 else ms


def _texts(rows: Iterable[Any]) -> list[tuple[str, str]]:
    return [(one.id.decode(errors="replace"), one.why.decode(errors="replace")) for one in rows]


def _chunks(claimed: Iterable[LeasedEntry]) -> Iterator[tuple[str, list[bytes]]]:
    for token, entries in itertools.groupby(claimed, lambda entry: entry.token):
        members = [entry.member for entry in entries]
        for start in range(0, len(members), CHUNK):
            yield token, members[start : start + CHUNK]
