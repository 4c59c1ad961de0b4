"""Charts of what falls due when, as SVG: a bar for each span of the clock.

overview: the next hour, day and week --a bar--> load: a day or an hour --a minute--> the list
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone, tzinfo
from typing import NamedTuple

from werkzeug.wrappers import Response

from ...core.clock import EPOCH, instant
from ...core.errors import InvalidOption
from ...core.tasks.reading import ahead
from .visit import Visit
from .words import moment_of, time_of, zone_of


class Spans(NamedTuple):
    """The spans of a chart.

    Attributes:
        title: The words above it.
        each: What a bar is.
        bars: How many bars.
        length: How long each is.
        apart: How far apart the marks of the time are.
        opens: The chart that a bar opens; empty: the list of its tasks.
    """

    title: str
    each: str
    bars: int
    length: timedelta
    apart: timedelta
    opens: str = ""


_MINUTE, _HOUR, _DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
SPANS = {
    "hour": Spans("Next hour", "minutes", 60, _MINUTE, 10 * _MINUTE),
    "day": Spans("Next 24 hours", "half hours", 48, 30 * _MINUTE, 3 * _HOUR, "hour"),
    "week": Spans("Next week", "3 hours", 56, 3 * _HOUR, _DAY, "day"),
}
_LEAST = 2.0  # per cent: one task among many is still seen
_MS = timedelta(milliseconds=1)
_LEFT, _RIGHT = 33, 67  # per cent: where the words of the peak stand beside it


class Bar(NamedTuple):
    """A bar: its place and size in per cent, its tasks, its span, and where it leads."""

    x: float
    y: float
    width: float
    height: float
    tasks: int
    begin: datetime
    end: datetime
    url: str


class Mark(NamedTuple):
    """A mark of the time: an hour, or the begin of a day."""

    x: float
    text: str


class Level(NamedTuple):
    """A line of the scale."""

    y: float
    tasks: int


class Chart(NamedTuple):
    """A chart, and all that is drawn in it; places are in per cent."""

    name: str
    spans: Spans
    bars: list[Bar]
    marks: list[Mark]
    scale: list[Level]
    begin: datetime
    end: datetime
    now: float | None
    peak: Bar | None
    peak_words: str

    @property
    def total(self) -> int:
        """The number of tasks in all bars."""
        return sum(bar.tasks for bar in self.bars)

    @property
    def peak_x(self) -> float:
        """Where the words of the peak stand."""
        return round(self.peak.x + self.peak.width / 2, 2) if self.peak else 0.0

    @property
    def peak_anchor(self) -> str:
        """Which end of these words stands there, so that they stay within the chart."""
        return "start" if self.peak_x < _LEFT else "end" if self.peak_x > _RIGHT else "mid"


def chart_of(visit: Visit, name: str, begin: datetime | None = None) -> Chart:
    """Return a chart.

    Args:
        visit: The visit.
        name: One of :data:`SPANS`.
        begin: Where its first bar begins; by default, with the span of the clock that now is in.
    """
    spans, zone, now = SPANS[name], zone_of(visit), visit.now
    whole = spans.bars * spans.length
    if begin is None:
        begin = floor(now, spans.length, zone)
        end = begin + whole
    else:
        end = later(begin, whole, zone)  # on a day of 25 hours, with two more bars
    number = -(-(end - begin) // spans.length)
    after_ms = (begin - EPOCH) // _MS - 1
    _, counts = ahead(visit.delayq.services, spans.length // _MS, number, after_ms)
    top, width = _top(max([1, *counts])), 100 * (spans.length / (end - begin))
    bars = []
    for at, count in enumerate(counts):
        height = round(max(_LEAST, 100 * count / top) if count else 0.0, 2)
        place = (
            round((at + 0.1) * width, 2),
            round(100 - height, 2),
            round(width * 0.8, 2),
            height,
        )
        first = begin + at * spans.length
        bars.append(Bar(*place, count, first, first + spans.length, _url(visit, spans, first)))
    most = max(bars, key=lambda bar: bar.tasks)
    peak = most if most.tasks else None
    return Chart(
        name,
        spans,
        bars,
        _marks(begin, end, spans.apart, zone),
        [
            Level(round(100 - 100 * level / top, 2), level)
            for level in sorted({0, top // 2, top})
        ],
        begin,
        end,
        round(100 * ((now - begin) / (end - begin)), 2) if begin <= now < end else None,
        peak,
        _words_of(peak, spans, zone) if peak else "",
    )  # fmt: skip


def load(visit: Visit) -> Response:
    """Show what falls due in one hour by minutes, or in one day by half hours.

    The URL has ``of``, the kind of chart, and ``begin``, a time in its first span.
    """
    name, text = visit.request.args.get("of", "hour"), visit.request.args.get("begin", "")
    if name not in SPANS:
        raise InvalidOption("of", name, f"one of {', '.join(SPANS)}")
    spans, zone, begin = SPANS[name], zone_of(visit), None
    whole = spans.bars * spans.length
    if text:
        given = moment_of(visit, time_of(text, "begin", ago=True), "begin")
        begin = floor(given, min(whole, _DAY), zone)
    chart = chart_of(visit, name, begin)
    return visit.page(
        "load.html",
        chart=chart,
        earlier=_load_url(visit, name, later(chart.begin, -whole, zone)),
        later=_load_url(visit, name, later(chart.begin, whole, zone)),
        day=_load_url(visit, "day", chart.begin),
    )


def floor(moment: datetime, length: timedelta, zone: tzinfo) -> datetime:
    """Return the begin of the span of a zone's clock that a moment is in."""
    here = moment.astimezone(zone)
    rest = timedelta(hours=here.hour, minutes=here.minute, seconds=here.second) % length
    rest += timedelta(microseconds=here.microsecond)
    return later(moment, -rest, zone) if length > _HOUR else moment - rest


def later(moment: datetime, span: timedelta, zone: tzinfo) -> datetime:
    """Return the moment at which a zone's clock shows a span more, if that is hours or days.

    Days differ in length where the clocks change.
    """
    if abs(span) <= _HOUR:
        return moment + span
    wall = moment.astimezone(zone).replace(tzinfo=None) + span
    return instant(wall, zone).astimezone(timezone.utc)


def _load_url(visit: Visit, name: str, begin: datetime) -> str:
    zone = visit.request.args.get("zone")
    return visit.url("load", of=name, begin=begin.isoformat(), zone=zone)


def _url(visit: Visit, spans: Spans, begin: datetime) -> str:
    if spans.opens:  # a chart begins on the clock of the viewer, whose zone the script adds
        return _load_url(visit, spans.opens, begin)
    end = begin + spans.length
    return visit.url("tasks", after=begin.isoformat(), before=end.isoformat())


def _words_of(bar: Bar, spans: Spans, zone: tzinfo) -> str:
    begin, end = (f"{each.astimezone(zone):%H:%M}" for each in (bar.begin, bar.end))
    when = f"at {begin}" if spans.length == _MINUTE else f"from {begin} to {end}"
    return f"{bar.tasks:,} {when}"


def _top(most: int) -> int:
    """Return the number at the top of the scale: 1, 2, 4, 6, 10, 20, 40, 60, 100 and so on."""
    unit = 1
    while True:
        for digits in (1, 2, 4, 6):
            if digits * unit >= most:
                return digits * unit
        unit *= 10


def _marks(begin: datetime, end: datetime, apart: timedelta, zone: tzinfo) -> list[Mark]:
    moment, found = later(floor(begin, apart, zone), apart, zone), []
    while moment < end:
        here = moment.astimezone(zone)
        x = round(100 * ((moment - begin) / (end - begin)), 2)
        found.append(Mark(x, f"{here:%a}" if apart == _DAY else f"{here:%H:%M}"))
        moment = later(moment, apart, zone)
    return found
