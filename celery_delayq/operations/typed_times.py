"""Reads times as people type them, for the command line and the page.

9:00   tomorrow 9:00   mon 9:00   9 pm    a time of day, and a day by its name
26.11. 9:00   26 Nov 2026, 09:00          a date as people write it
2030-01-31T09:00                          ISO 8601
1893456000                                Unix time, in seconds
in 2 h 30 min   +1h30m   +90   now        from now, by Redis's clock
-10m   10 min ago                         for filters: before now
by:+30m                                   from the task's due time

Text that can mean two times is refused, with both. Python's calls do not read these forms: a
program that says "mon 9:00" would mean another time each day, and fail on Mondays.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from functools import partial
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from ..core import clock
from ..core.clock import instant
from ..core.errors import InvalidDueTime

_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_PART = r"(?:(\d+(?:\.\d+)?){})?"
_SPAN = re.compile("".join(map(_PART.format, "dhms")))
_UNITS = ("days", "hours", "minutes", "seconds")
_BY = "by:"
_SHOWN = 60  # characters of what was typed

_WORDS = r"(\d+(?:\.\d+)?) ?(w|d|h|m|s)[a-z]*"
_IN_WORDS = re.compile(rf"(?:{_WORDS} ?)+")
_NAMES = re.compile(r"s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?|d|days?|w|weeks?")
_LONG = {"w": "weeks", "d": "days", "h": "hours", "m": "minutes", "s": "seconds"}

_OF_DAY = re.compile(r"(?:^|[ T])(\d{1,2})(?::(\d\d)(?::(\d\d))?)?(?: ?(am|pm))?$", re.IGNORECASE)
_ZONE = re.compile(r" (UTC|[A-Za-z]+/[A-Za-z_/+-]+)$")
_ISO = re.compile(r"(\d{4})-(\d\d?)-(\d\d?)")
_DOTTED = re.compile(r"(\d\d?)\. ?(\d\d?)\.(?: ?(\d{4}|\d\d))?")
_SLASHED = re.compile(r"(\d\d?)/(\d\d?)(?:/(\d{4}|\d\d))?")
_NAMED = re.compile(r"(?:(\d\d?)\.? ([a-z]+)|([a-z]+) (\d\d?))(?: (\d{4}))?")
DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_DAY_NAMES = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_MONTH_NAMES = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)
_COUNTS = {2: "two", 3: "three", 4: "four"}
_NEAR = {"today": 0, "tomorrow": 1, "yesterday": -1}
_NOON = 12
_A_DAY = timedelta(days=1)
_A_WEEK = timedelta(days=7)
_LEAP = date(2028, 1, 1)  # a year that has each day

_FORMS = ("2030-01-31T09:00", "tomorrow 9:00", "+1h30m from now (s m h d)", "Unix time in seconds")
_AGO = "-10m for ago"
_FROM_DUE = "by:+30m from its due time"


class TypedTimeError(ValueError):
    """The text is no time, or can mean two; its text is a sentence for a person."""


@dataclass(frozen=True)
class GivenTime:
    """A time as it was typed, not yet resolved to an instant.

    Attributes:
        kind: ``at``, ``after`` (from now), ``by`` (from the due time), ``day`` (a day and a time of
            day, in a zone), or ``never``.
        value: Unix time, a datetime (aware or naive), a timedelta, or what a day resolves to.
    """

    kind: str
    value: Any

    def moment(self, now: Callable[[], datetime], zone: Callable[[], tzinfo]) -> datetime | float:
        """Return the instant; not for ``by``, which needs a due time.

        Args:
            now: Returns the time by Redis's clock. Both are called only if the text needs them.
            zone: Returns the zone of times without an offset.

        Raises:
            TypedTimeError: the text can mean two times.
        """
        if self.kind == "after":
            soon: datetime = now() + self.value
            return soon
        if self.kind == "day":
            return _moment(self.value, now(), zone())
        if isinstance(self.value, datetime) and self.value.tzinfo is None:
            return instant(self.value, zone())
        moment: datetime | float = self.value
        return moment


#: Whether a day's time is over.
_IsOver = Callable[[date], bool]
#: From today, the dates that words can mean.
_Dates = Callable[[date, _IsOver], "list[date]"]


class _Day(NamedTuple):
    """A day in words, and a time of day; only the moment of reading gives its year or its week."""

    text: str
    dates: _Dates
    at: time
    zone: tzinfo | None


def read(text: str, *, ago: bool = False, due: bool = False, never: bool = False) -> GivenTime:
    """Read a time.

    Args:
        text: What was typed.
        ago: Whether it is for a filter: ``-10m`` and ``10 min ago`` are times as well.
        due: Whether ``by:+30m`` is one.
        never: Whether ``never`` is one.

    Raises:
        TypedTimeError: it is none; the sentence has examples.
    """
    try:
        return _read(" ".join(text.split()), ago=ago, due=due, never=never)
    except (InvalidDueTime, ValueError, OverflowError) as error:
        if isinstance(error, TypedTimeError):
            raise
        expected = _expected(text, ago=ago, due=due, never=never)
        raise TypedTimeError(f"{text[:_SHOWN]!r} is not a time; {expected}") from None


def is_day(text: str) -> bool:
    """Return whether the text is a day without its time of day, such as ``tomorrow``."""
    return _dates(text.lower(), past=False) is not None


def _read(text: str, *, ago: bool, due: bool, never: bool) -> GivenTime:
    if never and text.lower() == "never":
        return GivenTime("never", None)
    if due and text.lower().startswith(_BY):
        return GivenTime("by", _checked(clock.by, _signed(text[len(_BY) :])))
    span = _from_now(text.lower(), ago=ago)
    if span is not None:
        return GivenTime("after", _checked(clock.after, span))
    try:
        value = float(text) if _NUMBER.fullmatch(text) else clock.read(text)
    except InvalidDueTime:
        day = _day(text, past=ago)
        if day is None:
            raise
        return GivenTime("day", day)
    # Check it in any zone: the store refuses a time that the real zone moves out of range.
    clock.at(value, timezone.utc)
    return GivenTime("at", value)


def _from_now(text: str, *, ago: bool) -> timedelta | None:
    if text == "now":
        return timedelta(0)
    if text.startswith("+") or (ago and text.startswith("-")):
        return _signed(text)
    if text.startswith("in "):
        return _in_words(text[len("in ") :])
    return -_in_words(text[: -len(" ago")]) if ago and text.endswith(" ago") else None


def _day(text: str, *, past: bool) -> _Day | None:
    """Read a day and a time of day; return ``None`` if the text is none.

    With *past*, for a filter, a time that is over is as likely as one to come.
    """
    words, zone = text.replace(",", " ").strip(), None
    if found := _ZONE.search(words):
        zone, words = _known_zone(found[1]), words[: found.start()]
    words = " ".join(words.split())
    found = _OF_DAY.search(words)
    if not found or not (found[2] or found[4]):
        dates = _dates(words.lower(), past=past)
        if dates is None or not dates(_LEAP, lambda _: True):
            return None
        raise TypedTimeError(f"{text[:_SHOWN]!r} has no time of day; type {words} 9:00")
    at, words = _of_day(*found.groups()), words[: found.start()].lower()
    dates = _dates(words, past=past) if words else partial(_next, past=past)
    return None if dates is None else _Day(text, dates, at, zone)


def _known_zone(name: str) -> tzinfo:
    try:
        return timezone.utc if name == "UTC" else ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise TypedTimeError(f"this machine knows no time zone {name!r}") from None


def _of_day(hour: str, minute: str | None, second: str | None, half: str | None) -> time:
    hours = int(hour)
    if half:
        if not 1 <= hours <= _NOON:
            raise ValueError(hour)
        hours = hours % _NOON + _NOON * (half.lower() == "pm")
    return time(hours, int(minute or 0), int(second or 0))


def _dates(words: str, *, past: bool) -> _Dates | None:
    """Return what gives the dates that the words mean; ``None`` if they are no day."""
    if words in _NEAR:
        return lambda today, _: [today + _NEAR[words] * _A_DAY]
    name, _, rest = words.partition(" ")
    weekday = _place(name, _DAY_NAMES)
    if weekday is None:
        return _date(words, past=past)
    if not rest:
        return partial(_weekday, weekday, past=past)
    dates = _date(rest, past=past)
    if dates is None:
        return None
    return lambda today, is_over: [day for day in dates(today, is_over) if day.weekday() == weekday]


def _next(today: date, is_over: _IsOver, *, past: bool) -> list[date]:
    return [today + _A_DAY if is_over(today) and not past else today]


def _weekday(weekday: int, today: date, is_over: _IsOver, *, past: bool) -> list[date]:
    ahead = today + timedelta((weekday - today.weekday()) % 7)
    if ahead > today:
        return [ahead - _A_WEEK, ahead] if past else [ahead]
    if past:
        return [today]
    return [today + _A_WEEK] if is_over(today) else [today, today + _A_WEEK]


def _date(words: str, *, past: bool) -> _Dates | None:
    year: int | None = None
    if found := _ISO.fullmatch(words):
        days, year = [(int(found[3]), int(found[2]))], int(found[1])
    elif found := _DOTTED.fullmatch(words):
        days, year = [(int(found[1]), int(found[2]))], _year(found[3])
    elif found := _SLASHED.fullmatch(words):
        first, second = int(found[1]), int(found[2])
        # 4 March in one country, April 3 in another.
        days, year = sorted({(first, second), (second, first)}), _year(found[3])
    elif found := _NAMED.fullmatch(words):
        month = _place(found[2] or found[3], _MONTH_NAMES)
        if month is None:
            return None
        days, year = [(int(found[1] or found[4]), month + 1)], _year(found[5])
    else:
        return None
    return partial(_in_years, days, year, past=past)


def _in_years(
    days: list[tuple[int, int]], year: int | None, today: date, is_over: _IsOver, *, past: bool
) -> list[date]:
    found: list[date | None] = []
    for day, month in days:
        this = _valid(year or today.year, month, day)
        found.append(this)
        if year is None and not past and (this is None or is_over(this)):
            found.append(_valid(today.year + 1, month, day))
    return [each for each in found if each]


def _valid(year: int, month: int, day: int) -> date | None:
    try:
        return date(year, month, day)
    except ValueError:
        return None


def _year(text: str | None) -> int | None:
    return None if text is None else int(text) + 2000 * (len(text) == len("26"))


def _place(name: str, names: tuple[str, ...]) -> int | None:
    """Return the place of a name, which may be cut to three letters or more."""
    fitting = [place for place, each in enumerate(names) if each.startswith(name)]
    return fitting[0] if len(name) >= len("mon") and fitting else None


def _moment(day: _Day, now: datetime, zone: tzinfo) -> datetime:
    zone = day.zone or zone

    def is_over(date: date) -> bool:
        return _instants(date, day.at, zone)[-1] <= now

    dates = day.dates(now.astimezone(zone).date(), is_over)
    moments = [moment for date in dates for moment in _instants(date, day.at, zone)]
    if not moments:
        raise TypedTimeError(f"{day.text[:_SHOWN]!r} is not a time: there is no such day")
    if len(moments) > 1:
        either = " or ".join(moment.astimezone(zone).isoformat() for moment in moments)
        raise TypedTimeError(
            f"{day.text[:_SHOWN]!r} can mean {_COUNTS[len(moments)]} times; type {either}"
        )
    return moments[0]


def _instants(day: date, at: time, zone: tzinfo) -> list[datetime]:
    """Return the instants of a wall time: two, if the clocks are set back or forward over it."""
    wall = datetime.combine(day, at)
    both = {instant(wall.replace(fold=fold), zone).astimezone(timezone.utc) for fold in (0, 1)}
    return sorted(both)


def told(moment: datetime, zone: tzinfo, zone_name: str) -> str:
    """Return a time as it is told back: ``Thu 26 Nov 2026, 09:00 Europe/Berlin``."""
    here = moment.astimezone(zone)
    seconds = f":{here:%S}" if here.second else ""
    day = f"{DAYS[here.weekday()]} {here.day} {_MONTHS[here.month - 1]} {here.year}"
    return f"{day}, {here:%H:%M}{seconds} {zone_name}"


def _expected(text: str, *, ago: bool, due: bool, never: bool) -> str:
    bare = _NUMBER.fullmatch(text) or (text and _SPAN.fullmatch(text))
    if bare and len(text) < len("315532800"):
        from_due = f", by:+{text} from its due time" if due else ""
        return f"expected +{text} from now{from_due}, or a time such as 2030-01-31T09:00"
    forms = [*_FORMS, *[_AGO] * ago, *[_FROM_DUE] * due, *["never"] * never]
    return f"expected one before 2255-06-05: {', '.join(forms[:-1])}, or {forms[-1]}"


def _signed(text: str) -> timedelta:
    sign, span = text[:1], text[1:]
    if sign not in ("+", "-"):
        raise ValueError(text)
    return span_of(span) if sign == "+" else -span_of(span)


def span_of(text: str) -> timedelta:
    """Read a span without a sign, such as ``1h30m``, or seconds.

    Raises:
        ValueError: it is none.
    """
    if _NUMBER.fullmatch(text):
        return timedelta(seconds=float(text))
    found = _SPAN.fullmatch(text)
    if not text or not found:
        raise ValueError(text)
    parts = zip(_UNITS, found.groups(), strict=True)
    return timedelta(**{unit: float(number) for unit, number in parts if number})


def _in_words(text: str) -> timedelta:
    if not _IN_WORDS.fullmatch(text) or not all(
        _NAMES.fullmatch(name) for name in re.findall(r"[a-z]+", text)
    ):
        raise ValueError(text)
    return sum(
        (timedelta(**{_LONG[unit]: float(number)}) for number, unit in re.findall(_WORDS, text)),
        timedelta(0),
    )


def _checked(check: Callable[[Any], Any], span: timedelta) -> timedelta:
    """Return the span; *check* raises if it is invalid."""
    check(span)
    return span
