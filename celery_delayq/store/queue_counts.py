"""Counts waiting entries by queue, in due order and in short steps."""

from __future__ import annotations

from dataclasses import dataclass

from .shard import Shard

STEP = 500  # entries that one call looks at
STEP_BYTES = 500_000  # of records that one call reads
MOST_STEPS = 60  # per shard, if records are large


@dataclass(frozen=True)
class Tally:
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


def tallies_in(link: Shard, most: int) -> tuple[list[Tally], bool]:
    """Count a shard's waiting entries by queue; also return whether all were counted.

    Args:
        link: The shard.
        most: The most entries to look at, > 0; those overdue longest come first.
    """
    found: dict[bytes, Tally] = {}
    after, order, looked, is_complete = b"-1", -1, 0, True
    for _ in range(MOST_STEPS):
        step = link.scripts.call(
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
            text = place.decode(errors="replace")
            one = found.get(label) or Tally(label, 0, 0, text[:1], text[1:])
            found[label] = Tally(
                label, one.waiting + waiting, one.overdue + overdue, one.kind, one.place
            )
        if not after:
            return [*found.values()], is_complete
        if looked >= most:
            break
    return [*found.values()], False
