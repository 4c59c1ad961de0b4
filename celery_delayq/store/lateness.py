"""How late entries leave: counted from their due time, or from their last change if that is later.

So what is scheduled, moved or told to run "at once" is as late as its hand-over, and not as its due
time is old. A pause and refused attempts count.
"""

from __future__ import annotations

from .record import Record

TIMES_BYTES = 36  # of a record: due time, time of scheduling, last change


def lateness_in(times: bytes, now_us: int) -> list[float]:
    """Seconds, at least 0, for each record of which ``hand_over`` tells the times."""
    starts = range(0, len(times), TIMES_BYTES)
    return [
        _seconds(int(times[at : at + 13]), int.from_bytes(times[at + 29 : at + 36], "big"), now_us)
        for at in starts
    ]


def lateness_of(record: Record, now_us: float) -> float:
    """The same of one record."""
    return _seconds(record.due_ms, record.changed_us, now_us)


def _seconds(due_ms: int, changed_us: int, now_us: float) -> float:
    return max(0.0, (now_us - max(due_ms * 1000, changed_us)) / 1_000_000)
