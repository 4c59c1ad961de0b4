"""Counts waiting entries by queue, in due order and in short steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from .shard import Shard

STEP = 500  # entries that one call looks at
STEP_BYTES = 500_000  # of records that one call reads
MOST_STEPS = 60  # per shard, if records are large


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


def tallies_in(shard: Shard, most: int) -> tuple[list[QueueCount], bool]:
    """Count a shard's waiting entries by queue; also return whether all were counted.

    Args:
        shard: The shard.
        most: The most entries to look at, > 0; those overdue longest come first.
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
        if looked >= most:
            break
    return [*found.values()], False
