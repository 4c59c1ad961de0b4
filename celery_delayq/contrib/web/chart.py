"""The chart of what falls due when, as SVG; one bar for each span of time."""

from __future__ import annotations

from datetime import datetime, timedelta, tzinfo
from typing import NamedTuple

from ...core.clock import from_ms
from ...core.tasks.reading import ahead
from .visit import Visit

WIDTH, INNER, HEIGHT = 420, 384, 120  # the numbers of the scale stand beside the bars

#: The charts: how many bars, how long each span is, and how far apart the marks are.
SPANS = {
    "hour": (60, timedelta(minutes=1), timedelta(minutes=10)),
    "day": (48, timedelta(minutes=30), timedelta(hours=3)),
    "week": (56, timedelta(hours=3), timedelta(days=1)),
}
_DAY = timedelta(days=1)
_LETTERS = 11  # the height of the text


class Bar(NamedTuple):
    """A bar: its place and size, its number of tasks, and its span of time."""

    x: float
    y: float
    width: float
    height: float
    tasks: int
    begin: datetime
    end: datetime


class Mark(NamedTuple):
    """A mark of the time: an hour, or the begin of a day."""

    x: float
    text: str


class Level(NamedTuple):
    """A line of the scale."""

    y: float
    text_y: float
    tasks: int


class Chart(NamedTuple):
    """A chart, and all that is drawn in it."""

    bars: list[Bar]
    marks: list[Mark]
    scale: list[Level]
    begin: datetime
    end: datetime
    width: int = WIDTH
    inner: int = INNER
    height: int = HEIGHT


def chart_of(visit: Visit, name: str) -> Chart:
    """Return a chart; its marks are in the app's zone until the script moves them."""
    spans, length, apart = SPANS[name]
    now_ms, counts = ahead(visit.delayq.services, length // timedelta(milliseconds=1), spans)
    top, width, now = _top(max([1, *counts])), INNER / spans, from_ms(now_ms)
    bars = []
    for at, count in enumerate(counts):
        # One task among many is still seen.
        height = round(max(2.0, HEIGHT * count / top) if count else 0.0, 2)
        place = (round(at * width, 2), round(HEIGHT - height, 2), round(width * 0.85, 2), height)
        begin = now + at * length
        bars.append(Bar(*place, count, begin, begin + length))
    end = now + spans * length
    levels = {top, top // 2} - {0}
    scale = [
        Level(y := round(HEIGHT - HEIGHT * level / top, 2), max(y + 4, _LETTERS), level)
        for level in sorted(levels)
    ]
    marks = _marks(now, end, apart, visit.delayq.services.timezone)
    return Chart(bars, marks, scale, now, end)


def _top(most: int) -> int:
    """Return the number at the top of the scale: 1, 2, 4, 6, 10, 20, 40, 60, 100 and so on."""
    unit = 1
    while True:
        for digits in (1, 2, 4, 6):
            if digits * unit >= most:
                return digits * unit
        unit *= 10


def _marks(begin: datetime, end: datetime, apart: timedelta, zone: tzinfo) -> list[Mark]:
    here = begin.astimezone(zone)
    midnight = here.replace(hour=0, minute=0, second=0, microsecond=0)
    moment = midnight + ((here - midnight) // apart + 1) * apart
    found = []
    while moment < end:
        x = round(INNER * ((moment - begin) / (end - begin)), 2)
        found.append(Mark(x, f"{moment:%a %d}" if apart == _DAY else f"{moment:%H:%M}"))
        moment += apart
    return found
