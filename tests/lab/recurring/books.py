"""The books of rules: the fate of each slot, by the history of the store and the messages."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

NEAR_MS = 300  # between two looks at a key, and between a slot and the writer's look at it


@dataclass
class Evidence:
    """The facts about one rule; times are Unix ms.

    Attributes:
        slots: The slots that it has between the first and the last that count.
        written: Of each run that was written: its id, its slot, and when.
        delivered: The id of each run that the history has as delivered, once for each event.
        copies: Of each message or run seen: its id, and whether it is marked as a possible copy.
        held: Times at which its key was held; of a rule with a key.
    """

    slots: list[int]
    written: list[tuple[str, int, int]] = field(default_factory=list)
    delivered: list[str] = field(default_factory=list)
    copies: list[tuple[str, bool]] = field(default_factory=list)
    held: list[int] | None = None


@dataclass(frozen=True)
class Verdict:
    """How many slots a rule had, and what became of them.

    Attributes:
        slots: How many there were.
        once: Slots with exactly one entry, which was delivered once.
        excused: Slots left out as the key was held.
        behind: Slots left out as the run of an earlier slot, written after them, held the key.
        lost: Slots without an entry, for no reason.
        doubled: Slots with two entries or more.
        undelivered: Entries that no event or message says to be delivered.
        twice: Entries delivered twice by the history, or with a second copy that has no mark.
        marked: Copies that have the mark.
        strange: Entries for times that are no slots.
    """

    slots: int
    once: int
    excused: int
    behind: int
    lost: tuple[int, ...]
    doubled: tuple[int, ...]
    undelivered: tuple[str, ...]
    twice: tuple[str, ...]
    marked: int
    strange: tuple[int, ...]

    @property
    def is_sound(self) -> bool:
        return not (self.lost or self.doubled or self.undelivered or self.twice or self.strange)


def judge(seen: Evidence) -> Verdict:
    """Compare what was written and delivered with the slots."""
    slots, entries = set(seen.slots), Counter(slot for _, slot, _ in seen.written)
    first, last = min(slots, default=0), max(slots, default=0)
    ours = {run for run, slot, _ in seen.written if first <= slot <= last}
    reasons = {slot: _reason(seen, slot) for slot in seen.slots if not entries[slot]}
    undelivered = ours - {*seen.delivered}
    twice = _twice(seen) & ours
    bad = {slot for run, slot, _ in seen.written if run in undelivered | twice}
    return Verdict(
        slots=len(slots),
        once=sum(entries[slot] == 1 and slot not in bad for slot in slots),
        excused=_count(reasons.values(), "held"),
        behind=_count(reasons.values(), "behind"),
        lost=tuple(slot for slot, reason in reasons.items() if not reason),
        doubled=tuple(sorted(slot for slot in slots if entries[slot] > 1)),
        undelivered=tuple(sorted(undelivered)),
        twice=tuple(sorted(twice)),
        marked=sum(is_marked for _, is_marked in seen.copies),
        strange=tuple(
            sorted(slot for slot in entries if first < slot < last and slot not in slots)
        ),
    )


def _twice(seen: Evidence) -> set[str]:
    """The ids that were delivered twice, unless all copies but one are marked."""
    events = Counter(seen.delivered)
    unmarked = Counter(run for run, is_marked in seen.copies if not is_marked)
    return {run for count in (events, unmarked) for run in count if count[run] > 1}


def _reason(seen: Evidence, slot: int) -> str:
    """Why a slot of a keyed rule has no entry; empty: for no reason."""
    if seen.held is None:
        return ""
    if any(abs(when - slot) <= NEAR_MS for when in seen.held):
        return "held"
    late = any(earlier < slot < when for _, earlier, when in seen.written)
    return "behind" if late else ""


def _count(values: Iterable[str], wanted: str) -> int:
    return sum(value == wanted for value in values)
