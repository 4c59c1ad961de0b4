"""What a shard holds, in numbers, and what is paused there; and that of all shards together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from ..clock import from_ms
from .shard import Shard
from .values import time_in

SLICE = 200  # lanes that a step looks at, about
OVERDUE = 300  # entries that are looked at for what is overdue longest: some 2 ms for each index
OVERDUE_BYTES = 500_000  # of their records


@dataclass(frozen=True)
class Counts:
    """How many entries are in which state; the next due time; how many scanners are alive.

    ``scheduled`` are those that wait, with the ``overdue`` ones, and those that were ``refused``
    and wait for their next try, which are overdue. ``paused`` fell due while they were, and are
    counted as nothing else; so is what comes back at a rate, until its turn. Those that no scanner
    has met yet are looked for among the first 300 that are due, and the first 300 that were
    refused; behind these they count as overdue.

    ``oldest_overdue_ms``: the due time of what is overdue longest, and not paused; ``None`` if
    nothing is. Of more than 300 that were refused, those count that are tried next.
    ``next_due_ms``: that of the first that waits, overdue or not.
    """

    scheduled: int
    in_flight: int
    dead: int
    scanners: int
    overdue: int
    paused: int
    refused: int
    next_due_ms: int | None
    now_ms: int
    oldest_overdue_ms: int | None = None


@dataclass(frozen=True)
class Scanner:
    """A scanner that is alive: its name, and when it gave its last heartbeat, in ms."""

    name: str
    seen_ms: int

    @property
    def host(self) -> str:
        """The host that it runs on; see :func:`new_name`."""
        return self.name.rsplit(":", 2)[0]


@dataclass(frozen=True)
class Pause:
    """What is paused: a queue, a task, or neither, which is everything.

    Attributes:
        queue: The queue that is paused, or ``None``.
        task: The name of the task that is paused, or ``None``.
        since: When it was.
        late: Whether it counts as lateness for entries with a late policy.
        parked: How many entries fell due meanwhile, and are still here; those that no scanner has
            met yet as far as they are among the first 300 that are due, or were refused.
        resumed: Whether they are coming back.
        rate: How many of them come back a second at most; ``None``: as fast as it goes.
    """

    queue: str | None
    task: str | None
    since: datetime
    late: bool
    parked: int
    resumed: bool
    rate: float | None

    @property
    def what(self) -> str:
        """What is paused, in words."""
        return lane_in_words(self.queue, self.task)

    @property
    def seconds_left(self) -> float:
        """Until the last of those that come back at a rate has its turn; 0 of anything else."""
        return self.parked / self.rate if self.resumed and self.rate else 0.0

    def and_of(self, other: Pause) -> Pause:
        """The same of two shards: it comes back where both do."""
        rates = [one.rate for one in (self, other) if one.rate is not None]
        return replace(
            self,
            since=min(self.since, other.since),
            parked=self.parked + other.parked,
            resumed=self.resumed and other.resumed,
            rate=sum(rates) if rates else None,
        )


def lane_in_words(queue: str | None, task: str | None) -> str:
    """What a queue, a task, or neither is called where it is paused or resumed."""
    if queue is None and task is None:
        return "everything"
    return f"task {task}" if queue is None else f"queue {queue}"


def counts_in(link: Shard) -> Counts:
    """All counts of a shard, at one instant."""
    found = link.scripts.call("counts", most=OVERDUE, max_bytes=OVERDUE_BYTES)
    return Counts(
        found.scheduled,
        found.in_flight,
        found.dead,
        found.scanners,
        found.overdue,
        found.paused,
        found.refused,
        next_due_ms=min((head for head in (found.due, found.relay) if head >= 0), default=None),
        now_ms=found.now // 1000,
        oldest_overdue_ms=None if found.oldest < 0 else found.oldest,
    )


def scanners_in(link: Shard) -> list[Scanner]:
    """The scanners that are alive, as a shard knows them; each serves all shards."""
    return [
        Scanner(one.name.decode(errors="replace"), time_in(one.seen) or 0)
        for one in link.scripts.call("scanners")
    ]


def sum_of(counts: Sequence[Counts]) -> Counts:
    """The counts of all shards; a scanner serves each of them."""
    heads = [one.next_due_ms for one in counts if one.next_due_ms is not None]
    oldest = [one.oldest_overdue_ms for one in counts if one.oldest_overdue_ms is not None]
    sums = ("scheduled", "in_flight", "dead", "overdue", "paused", "refused")
    return replace(
        counts[0],
        **{name: sum(getattr(one, name) for one in counts) for name in sums},
        scanners=max(one.scanners for one in counts),
        next_due_ms=min(heads, default=None),
        now_ms=max(one.now_ms for one in counts),
        oldest_overdue_ms=min(oldest, default=None),
    )


def pauses_in(link: Shard) -> list[Pause]:
    """What is paused in a shard, or comes back."""
    found: dict[bytes, Pause] = {}
    cursor: Any = 0
    while True:
        cursor, lanes = link.scripts.call(
            "pauses", cursor=cursor, count=SLICE, most=OVERDUE, max_bytes=OVERDUE_BYTES
        )
        found |= {one.lane: _pause(one) for one in lanes}
        if int(cursor) == 0:
            return sorted(found.values(), key=lambda one: (one.queue or "", one.task or ""))


def union_of(pauses: Iterable[Sequence[Pause]]) -> list[Pause]:
    """The pauses of all shards."""
    found: dict[tuple[str | None, str | None], Pause] = {}
    for shard in pauses:
        for one in shard:
            before = found.get((one.queue, one.task))
            found[one.queue, one.task] = one if before is None else before.and_of(one)
    return [*found.values()]


def _pause(one: Any) -> Pause:
    kind, text = one.lane[:1], one.name.decode(errors="replace")
    return Pause(
        queue=text if kind == b"q" else None,
        task=text if kind == b"t" else None,
        since=from_ms(time_in(float(one.since) // 1000) or 0),
        late=bool(one.is_late),
        parked=one.parked,
        resumed=bool(one.is_back),
        rate=float(one.rate) or None,
    )
