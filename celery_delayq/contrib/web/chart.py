"""The chart of what falls due when, as SVG; one bar for each span of time."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

from ...core.clock import from_ms
from ...core.tasks.reading import ahead
from .visit import Visit

WIDTH, HEIGHT = 600, 120

#: The charts: how many bars, and how long each span is.
SPANS = {
    "hour": (60, timedelta(minutes=1)),
    "day": (48, timedelta(minutes=30)),
    "week": (56, timedelta(hours=3)),
}


class Bar(NamedTuple):
    """A bar: its place and size, its number of tasks, and its span of time."""

    x: float
    y: float
    width: float
    height: float
    tasks: int
    begin: datetime
    end: datetime


def bars_of(visit: Visit, name: str) -> list[Bar]:
    """Return the bars of a chart, the earliest first."""
    spans, length = SPANS[name]
    now_ms, counts = ahead(visit.delayq.services, length // timedelta(milliseconds=1), spans)
    most, width = max([1, *counts]), WIDTH / spans
    found = []
    for at, count in enumerate(counts):
        # One task among many is still seen.
        height = round(max(2.0, HEIGHT * count / most) if count else 0.0, 2)
        place = (round(at * width, 2), round(HEIGHT - height, 2), round(width * 0.85, 2), height)
        begin = from_ms(now_ms) + at * length
        found.append(Bar(*place, count, begin, begin + length))
    return found
