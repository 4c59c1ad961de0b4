"""How late entries leave: counted from their due time, or from their last change if that is later.

So what is scheduled, moved or told to run "at once" is as late as its hand-over, and not as its due
time is old. A pause and refused attempts count.
"""

from __future__ import annotations

from .record import DUE, FLAGS, Record

TIMES_BYTES = FLAGS - DUE  # of a record: due time, time of scheduling, last change


def lateness_in(times: bytes, now_us: int) -> list[float]:
    """Seconds, at least 0, for each record of which ``hand_over`` tells the times."""
    # A record without what stands before its times.
    records = (Record(times, at - DUE) for at in range(0, len(times), TIMES_BYTES))
    return [lateness_of(one, now_us) for one in records]


def lateness_of(record: Record, now_us: float) -> float:
    """The same of one record."""
    return max(0.0, (now_us - max(record.due_ms * 1000, record.changed_us)) / 1_000_000)
