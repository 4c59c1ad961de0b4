"""The lateness of entries: from their due time to delivery, or from their last change if later.

A task that was scheduled, moved or run "at once" is late from then on, not from its due time.
Pauses and refused attempts count.
"""

from __future__ import annotations

from .record import DUE, FLAGS, Record

TIMES_BYTES = FLAGS - DUE  # of a record: due time, time of scheduling, last change


def lateness_in(times: bytes, now_us: int) -> list[float]:
    """Return seconds, at least 0, for each record whose times ``hand_over`` returned."""
    # A record without the part before its times.
    records = (Record(times, at - DUE) for at in range(0, len(times), TIMES_BYTES))
    return [lateness_of(record, now_us) for record in records]


def lateness_of(record: Record, now_us: float) -> float:
    """Return the lateness of one record in seconds, at least 0."""
    return max(0.0, (now_us - max(record.due_ms * 1000, record.changed_us)) / 1_000_000)
