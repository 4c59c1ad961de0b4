"""Of which queues the waiting entries are, looked at in due order, in steps that hold up nobody."""

from __future__ import annotations

from dataclasses import dataclass

from .shard import Shard

STEP = 500  # entries that one call looks at
STEP_BYTES = 500_000  # of records that one call reads
MOST_STEPS = 60  # of a shard, where records are large


@dataclass(frozen=True)
class Tally:
    """How many entries of a queue wait, as far as they were looked at.

    Attributes:
        label: See :func:`label_of`; empty of what cannot be read.
        waiting: So many, with those that are overdue.
        overdue: So many are due, or were refused.
        kind: ``"L"`` where one of them is bound for a list in this Redis, ``"R"`` for a relay.
        place: Where that one goes to: a list's key, or a route.
    """

    label: bytes
    waiting: int
    overdue: int
    kind: str
    place: str


def tallies_in(link: Shard, most: int) -> tuple[list[Tally], bool]:
    """What waits in a shard by its queues; and whether that is all.

    Args:
        link: To the shard.
        most: Look at no more than so many entries, > 0: first at what is overdue longest.
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
