"""Counts, scanners and pauses: of a shard, and of all shards together; and counts by queue.

Waiting entries are counted by queue in due order and in short steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from itertools import chain
from math import inf
from typing import Any, NamedTuple

from .. import clock
from ..clock import from_ms
from ..text import counted
from ..threads import gather
from .calls import Shard
from .record import time_in

SLICE = 200  # lanes that a step looks at, about
OVERDUE = 300  # entries searched for the one overdue longest: some 2 ms for each index
OVERDUE_BYTES = 500_000  # of their records
STEP = 500  # waiting entries that a count by queue looks at in one call
STEP_BYTES = 500_000  # of their records
MOST_STEPS = 60  # per shard, if records are large


_OF_RULES = ("rules", "troubled_rules")


@dataclass(frozen=True)
class Counts:
    """How many entries are in which state; the next due time; how many scanners are alive.

    ``scheduled`` counts waiting entries, including ``overdue`` ones, and ``refused`` ones, which
    wait for another try and are overdue. ``paused`` entries fell due during a pause and count as
    nothing else; so do entries that come back at a rate, until their turn. If no scanner has met
    them yet, they are looked for among the first 300 due and the first 300 refused ones; beyond
    these they count as overdue.

    ``oldest_overdue_ms``: the due time of the entry overdue longest and not paused, or ``None``. Of
    more than 300 refused entries it considers those with the next tries.
    ``next_due_ms``: the due time of the first waiting entry, overdue or not.
    ``resharding``: the old and the new number of shards, while the store is being resharded.
    ``is_exact``: if not, ``paused`` is too low, and ``scheduled``, ``overdue`` or ``refused`` too
    high, as there are further such entries.
    ``rules``, ``troubled_rules``: how many recurring rules there are; and rules whose next run
    cannot be made. ``rule_look_ms``: when the first of them has to be looked at, or ``None``.
    ``began_ms``: when the store was joined first; of several shards, the one that began last. It
    begins anew when its Redis is emptied. ``scanner_ms``: when the first of the live scanners
    joined it. Each is ``None`` if it is not known.
    ``unknown``: entries that were delivered, and that no worker knew.
    ``reconciled``: of tags, what the last reconcile of each noted.
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
    resharding: tuple[int, int] | None = None
    is_exact: bool = True
    rules: int = 0
    rule_look_ms: int | None = None
    troubled_rules: int = 0
    began_ms: int | None = None
    scanner_ms: int | None = None
    unknown: int = 0
    reconciled: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class LiveScanner:
    """A live scanner.

    Attributes:
        name: Its name.
        seen_ms: The time of its last heartbeat.
        reads: The newest format of records and rules that it reads.
        since_ms: When it joined the shard; ``None``: unknown.
    """

    name: str
    seen_ms: int
    reads: str
    since_ms: int | None = None

    @property
    def host(self) -> str:
        """The host that it runs on; see :func:`new_name`."""
        return self.name.rsplit(":", 2)[0]

    @property
    def restarts(self) -> int:
        """How often its thread was started again; see :func:`restarted`."""
        last = self.name.rsplit(":", 1)[-1].partition("-")[2]
        return int(last) if last.isdecimal() else 0


@dataclass(frozen=True)
class Pause:
    """A paused lane: a queue, a task, or everything.

    Attributes:
        queue: The paused queue, or ``None``.
        task: The name of the paused task, or ``None``.
        since: When the pause began.
        late: Whether the pause counts as lateness for entries with a late policy.
        parked: How many entries fell due meanwhile and are still here. Those that no scanner has
            met yet are counted among the first 300 due and the first 300 refused ones only.
        resumed: Whether they are coming back.
        rate: The most that come back in a second; ``None``: no limit.
        held_since: Since when the first of them is due and paused; ``None`` if none is due.
        is_exact: If not, *parked* is too low, as there are further due or refused entries.
    """

    queue: str | None
    task: str | None
    since: datetime
    late: bool
    parked: int
    resumed: bool
    rate: float | None
    held_since: datetime | None = None
    is_exact: bool = True

    @property
    def what(self) -> str:
        """The lane, in words."""
        return lane_in_words(self.queue, self.task)

    @property
    def parked_in_words(self) -> str:
        """``2 tasks``, or ``at least 300 tasks``."""
        return "at least " * (not self.is_exact) + counted(self.parked)

    @property
    def seconds_left(self) -> float:
        """Until the last of those that come back at a rate has its turn; 0 of anything else."""
        return self.parked / self.rate if self.resumed and self.rate else 0.0

    def seconds_held(self, now_ms: int) -> float:
        """How long the first due entry has been paused, at a time; 0 if none is, or they resume."""
        if self.resumed or self.held_since is None:
            return 0.0
        return max(0.0, now_ms / 1000 - self.held_since.timestamp())

    def and_of(self, other: Pause) -> Pause:
        """Merge with the same lane of another shard; it is resumed if it is in both."""
        rates = [pause.rate for pause in (self, other) if pause.rate is not None]
        held = [pause.held_since for pause in (self, other) if pause.held_since is not None]
        return replace(
            self,
            since=min(self.since, other.since),
            parked=self.parked + other.parked,
            resumed=self.resumed and other.resumed,
            rate=sum(rates) if rates else None,
            held_since=min(held, default=None),
            is_exact=self.is_exact and other.is_exact,
        )


def lane_in_words(queue: str | None, task: str | None) -> str:
    """Name a lane for messages: a queue, a task, or everything."""
    if queue is None and task is None:
        return "everything"
    return f"task {task}" if queue is None else f"queue {queue}"


def counts_in(shard: Shard, *, living: bool = True) -> Counts:
    """Return all counts of a shard, at one instant; with *living*, also of scanners."""
    found = shard.scripts.call("counts", most=OVERDUE, max_bytes=OVERDUE_BYTES, living=int(living))
    closed = found.closed.split()
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
        oldest_overdue_ms=_known(found.oldest),
        resharding=(int(closed[1]), int(closed[2])) if closed else None,
        is_exact=not found.cut,
        rules=found.rules,
        rule_look_ms=_known(found.behind),
        troubled_rules=found.troubled,
        began_ms=_known(found.began),
        scanner_ms=_known(found.since),
        unknown=found.unknown,
        reconciled=_reconciled(found.reconciled) if found.reconciled else (),
    )


def _reconciled(flat: Sequence[bytes]) -> tuple[tuple[str, str], ...]:
    texts = iter([part.decode(errors="replace") for part in flat])
    return tuple(zip(texts, texts, strict=True))


def _known(ms: int) -> int | None:
    return None if ms < 0 else ms


def falling_due(
    shards: Iterable[Shard], span_ms: int, spans: int, after_ms: int = -1
) -> tuple[int, list[int]]:
    """Return the time now, in ms, and how many entries fall due in each span after a time, or now.

    Entries that are refused or parked are not counted.
    """
    asked = {"after_ms": after_ms, "span_ms": span_ms, "spans": spans}
    found = gather(*(partial(shard.scripts.call, "ahead", **asked) for shard in shards))
    counts = [sum(some) for some in zip(*(shard.counts for shard in found), strict=True)]
    return min(shard.now for shard in found) // 1000, counts


def scanners_in(shard: Shard) -> list[LiveScanner]:
    """Return the live scanners, as a shard knows them; each serves all shards."""
    return [
        LiveScanner(
            row.name.decode(errors="replace"),
            time_in(row.seen) or 0,
            row.reads.decode(),
            _known(row.since),
        )
        for row in shard.scripts.call("scanners")
    ]


def sum_of(counts: Sequence[Counts]) -> Counts:
    """Sum the counts of all shards; each scanner serves all of them."""
    heads = [count.next_due_ms for count in counts if count.next_due_ms is not None]
    oldest = [count.oldest_overdue_ms for count in counts if count.oldest_overdue_ms is not None]
    looks = [count.rule_look_ms for count in counts if count.rule_look_ms is not None]
    # Each scanner serves all shards, so it is older than this one, if than any.
    youngest = max(counts, key=lambda count: count.began_ms or 0)
    sums = ("scheduled", "in_flight", "dead", "overdue", "paused", "refused", "unknown", *_OF_RULES)
    return replace(
        counts[0],
        **{name: sum(getattr(count, name) for count in counts) for name in sums},
        scanners=max(count.scanners for count in counts),
        next_due_ms=min(heads, default=None),
        now_ms=max(count.now_ms for count in counts),
        oldest_overdue_ms=min(oldest, default=None),
        rule_look_ms=min(looks, default=None),
        resharding=next(filter(None, (count.resharding for count in counts)), None),
        is_exact=all(count.is_exact for count in counts),
        began_ms=youngest.began_ms,
        scanner_ms=youngest.scanner_ms,
        reconciled=tuple(chain.from_iterable(count.reconciled for count in counts)),
    )


def pauses_in(shard: Shard) -> list[Pause]:
    """Return the lanes of a shard that are paused or coming back."""
    found: dict[bytes, Pause] = {}
    cursor: Any = 0
    while True:
        cursor, cut, lanes = shard.scripts.call(
            "pauses", cursor=cursor, count=SLICE, most=OVERDUE, max_bytes=OVERDUE_BYTES
        )
        found |= {lane.lane: _pause(lane, is_exact=not cut) for lane in lanes}
        if int(cursor) == 0:
            return sorted(found.values(), key=lambda pause: (pause.queue or "", pause.task or ""))


def union_of(pauses: Iterable[Sequence[Pause]]) -> list[Pause]:
    """Merge the pauses of all shards."""
    found: dict[tuple[str | None, str | None], Pause] = {}
    for shard in pauses:
        for pause in shard:
            before = found.get((pause.queue, pause.task))
            found[pause.queue, pause.task] = pause if before is None else before.and_of(pause)
    return [*found.values()]


def _pause(row: Any, *, is_exact: bool) -> Pause:
    kind, text = row.lane[:1], row.name.decode(errors="replace")
    since = from_ms(time_in(float(row.since) // 1000) or 0)
    return Pause(
        queue=text if kind == b"q" else None,
        task=text if kind == b"t" else None,
        since=since,
        late=bool(row.is_late),
        parked=row.parked,
        resumed=bool(row.is_back),
        rate=float(row.rate) or None,
        is_exact=is_exact,
        held_since=None if row.oldest < 0 else max(since, from_ms(row.oldest)),
    )


@dataclass(frozen=True)
class QueueCount:
    """How many entries of a queue wait, of those that were looked at.

    Attributes:
        label: See :func:`label_of`; empty for unreadable entries.
        waiting: How many wait, including overdue ones.
        overdue: How many are due, or were refused.
        kind: ``"L"`` if one of them is bound for a list in this Redis, ``"R"`` for a relay.
        place: The destination of that one: a list's key, or a route.
    """

    label: bytes
    waiting: int
    overdue: int
    kind: str
    place: str


class WalkPosition(NamedTuple):
    """A place among all waiting entries: a shard, and the last entry that was looked at there."""

    shard: int = 0
    after: str = "-1"
    order: int = -1


def walk(
    shards: Sequence[Shard], place: WalkPosition
) -> Iterator[tuple[WalkPosition | None, list[QueueCount]]]:
    """Yield the tallies of some entries after a place, and the place behind them.

    That place is ``None`` behind the last entries. A step counts and leaves out as ``queues.lua``.
    """
    for shard_number, shard in enumerate(shards[place.shard :], place.shard):
        after, order = place[1:] if shard_number == place.shard else WalkPosition()[1:]
        while after:
            step = shard.scripts.call(
                "queues", after=after, order=order, limit=STEP, max_bytes=STEP_BYTES
            )
            after, order = step.after.decode(), step.order
            behind = (
                WalkPosition(shard_number, after, order)
                if after
                else WalkPosition(shard_number + 1)
            )
            tallies = [
                QueueCount(label, waiting, overdue, *_divided(where))
                for label, waiting, overdue, where in step.tallies
            ]
            yield (behind if behind.shard < len(shards) else None), tallies


def _divided(place: bytes) -> tuple[str, str]:
    text = place.decode(errors="replace")
    return text[:1], text[1:]


def tallies_in(shard: Shard, most: int, until: float = inf) -> tuple[list[QueueCount], bool]:
    """Count a shard's waiting entries by queue; also return whether all were counted.

    Args:
        shard: The shard.
        most: The most entries to look at, > 0; those overdue longest come first.
        until: When to look at no more, by the monotonic clock.
    """
    found: dict[bytes, QueueCount] = {}
    after, order, looked, is_complete = b"-1", -1, 0, True
    for _ in range(MOST_STEPS):
        step = shard.scripts.call(
            "queues",
            after=after,
            order=order,
            limit=min(STEP, most - looked),
            max_bytes=STEP_BYTES,
        )
        after, order = step.after, step.order
        looked += step.looked
        is_complete = is_complete and step.left_out <= 0
        for label, waiting, overdue, place in step.tallies:
            count = found.get(label) or QueueCount(label, 0, 0, *_divided(place))
            found[label] = QueueCount(
                label, count.waiting + waiting, count.overdue + overdue, count.kind, count.place
            )
        if not after:
            return [*found.values()], is_complete
        if looked >= most or clock.monotonic() >= until:
            break
    return [*found.values()], False
