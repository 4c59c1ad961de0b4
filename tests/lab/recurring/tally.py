"""How often each slot ran, from the notes of the runs: time, and the slot if the message says it.

A run of beat does not say which slot it is for. A crontab's is the minute in which it runs. An
interval has no slots that outlive a restart: so gaps of one interval and a half or more are counted
as lost slots, and runs beyond one an interval as doubled.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

Run = tuple[float, float | None]  # when it ran, and its slot if known; Unix seconds
EARLY = 0.5  # seconds by which a clock may be behind another one
GAP = 1.5  # intervals


@dataclass(frozen=True)
class Tally:
    """The fate of the slots of a while.

    Attributes:
        slots: How many there were.
        once: How many ran once, late or not.
        lost: How many did not run.
        doubled: How many runs were one too many.
        late: How many runs came 5 s or an interval after their slot; ``None``: it is not known.
    """

    slots: int
    once: int
    lost: int
    doubled: int
    late: int | None


def tally(runs: Sequence[Run], seconds: int, begin: float, end: float) -> Tally:
    """Count the slots after *begin* and up to *end*, of a schedule of every so many seconds."""
    known = [slot for _, slot in runs if slot is not None]
    if known or seconds == 60:
        return _by_slot(runs, seconds, begin, end)
    return _by_gaps([when for when, _ in runs if begin < when <= end], seconds, begin, end)


def _by_slot(runs: Sequence[Run], seconds: int, begin: float, end: float) -> Tally:
    first = int(begin // seconds + 1) * seconds
    slots = range(first, int(end) + 1, seconds)
    found = [(when, slot or (when + EARLY) // seconds * seconds) for when, slot in runs]
    times = Counter(slot for _, slot in found)
    return Tally(
        slots=len(slots),
        once=sum(times[slot] == 1 for slot in slots),
        lost=sum(not times[slot] for slot in slots),
        doubled=sum(max(0, times[slot] - 1) for slot in slots),
        late=sum(slot in slots and when - slot > min(seconds, 5) for when, slot in found),
    )


def _by_gaps(times: Sequence[float], seconds: int, begin: float, end: float) -> Tally:
    slots = round((end - begin) / seconds)
    marks = [begin, *sorted(times), end]
    gaps = [after - before for before, after in pairwise(marks)]
    lost = sum(round(gap / seconds) - 1 for gap in gaps if gap >= GAP * seconds)
    doubled = max(0, len(times) - (slots - lost))
    return Tally(slots, slots - lost - doubled, lost, doubled, None)
