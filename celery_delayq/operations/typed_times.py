"""Reads times as people type them, for the command line and the page: ``FORMS`` has each form.

Text that can mean two times is refused, with both. Python's calls do not read these forms: a
program that says "mon 9:00" would mean another time each day, and fail on Mondays.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from difflib import get_close_matches
from enum import Enum
from functools import partial
from typing import Any, NamedTuple, Union
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
_AT_NOON = re.compile(r"(^| )noon$", re.IGNORECASE)
_WEEKS = {"this week": 0, "next week": 7}
_TO = ".."  # between the ends of a span
_ALIKE = 0.8  # difflib's ratio: one slip in a word of five letters
_A_DAY = timedelta(days=1)
_A_WEEK = timedelta(days=7)
_LEAP = date(2028, 1, 1)  # a year that has each day


class Form(NamedTuple):
    """A way to type a time: examples, what they mean, and for what it is if not for all."""

    examples: tuple[str, ...]
    means: str
    only_for: str = ""


MOVES, FILTERS, SPANS = "a new due time", "filters", "the filter `--due`"
#: The documentation and ``--help`` are written from these.
FORMS = (
    Form(("9:00", "9 pm", "noon"), "the next such time of day"),
    Form(("tomorrow 9:00", "mon 9:00"), "a day by its name, and a time of day"),
    Form(("26.11. 9:00", "26 Nov 2026 9:00"), "a date, and a time of day"),
    Form(("mon 9:00 Europe/Berlin",), "any of these, in that time zone"),
    Form(("2030-01-31T09:00", "2030-01-31T09:00Z"), "ISO 8601 text"),
    Form(("1893456000",), "Unix time in seconds"),
    Form(("in 2 h 30 min", "+1h30m", "+90", "now"), "from now, by Redis's clock (s, m, h, d)"),
    Form(("by:+30m", "by:-1d"), "from the task's own due time", MOVES),
    Form(("-10m", "10 min ago"), "before now", FILTERS),
    Form(
        ("tomorrow", "sun", "29 Nov", "this week"),
        "from its midnight to the next one; as a bound, its begin",
        FILTERS,
    ),
    Form(("mon..fri", "..noon", "+1h.."), "from one to the end of the other", SPANS),
)


def forms(only_for: str) -> str:
    """The forms of one purpose, as a sentence for ``--help``."""
    fit = [one for one in FORMS if one.only_for in ("", only_for)]
    return "; ".join(f"{', '.join(map(repr, one.examples))}: {one.means}" for one in fit) + "."


def first_forms(only_for: str) -> str:
    """An example of each form of one purpose."""
    return ", ".join(repr(one.examples[0]) for one in FORMS if one.only_for in ("", only_for))


_FORMS = ("2030-01-31T09:00", "tomorrow 9:00", "+1h30m from now (s m h d)", "Unix time in seconds")
_AGO = "-10m for ago"
_A_SPAN = "a day such as tomorrow, or a span such as mon..fri"
_FROM_DUE = "by:+30m from its due time"


class TypedTimeError(ValueError):
    """The text is no time, or can mean two; its text is a sentence for a person."""


@dataclass(frozen=True)
class GivenTime:
    """A time as it was typed, not yet resolved to an instant.

    Attributes:
        kind: ``at``, ``after`` (from now), ``by`` (from the due time), ``day`` (a day and a time of
            day, in a zone), ``days`` (whole days, in a zone), or ``never``.
        value: Unix time, a datetime (aware or naive), a timedelta, or what a day resolves to.
    """

    kind: str
    value: Any

    def moment(self, now: Callable[[], datetime], zone: Callable[[], tzinfo]) -> datetime | float:
        """Return the instant, of days their begin; not for ``by``, which needs a due time.

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
        if self.kind == "days":
            return _ends(self.value, now(), zone())[0]
        if isinstance(self.value, datetime) and self.value.tzinfo is None:
            return instant(self.value, zone())
        moment: datetime | float = self.value
        return moment

    def end(self, now: Callable[[], datetime], zone: Callable[[], tzinfo]) -> datetime | float:
        """Return the instant until which a span lasts that ends with this; of days their end."""
        if self.kind == "days":
            return _ends(self.value, now(), zone())[1]
        return self.moment(now, zone)


#: An instant: an aware datetime, or Unix time in seconds.
_Instant = Union[datetime, float]
#: The begin and the end of a span, which is no part of it; ``None``: open.
Ends = tuple[_Instant | None, _Instant | None]


class GivenSpan(NamedTuple):
    """A span of due times as it was typed: from the first time until the last; ``None``: open."""

    text: str
    first: GivenTime | None
    last: GivenTime | None

    def ends(self, now: Callable[[], datetime], zone: Callable[[], tzinfo]) -> Ends:
        """Return its ends; as :meth:`GivenTime.moment`.

        Raises:
            TypedTimeError: it ends before it begins, or a text can mean two times.
        """
        begin = None if self.first is None else self.first.moment(now, zone)
        end = None if self.last is None else self.last.end(now, zone)
        if begin is not None and end is not None and _ms(begin) >= _ms(end):
            told = " ends before it begins; type dates, such as 2030-01-28..2030-01-31"
            raise TypedTimeError(f"{self.text[:_SHOWN]!r}{told}")
        return begin, end


def overlap(*spans: Ends) -> Ends:
    """Return what spans have in common."""
    begins = [begin for begin, _ in spans if begin is not None]
    ends = [end for _, end in spans if end is not None]
    return max(begins, key=_ms, default=None), min(ends, key=_ms, default=None)


def _ms(moment: _Instant) -> int:
    return clock.to_ms(moment, timezone.utc)


class _For(Enum):
    """What a day's words are for; so of the days of that name, which ones they can mean."""

    DUE = "a time to come"
    FILTER = "a time to come, or one that is over"
    WHOLE = "the whole day: the weekday to come, or the nearest date"


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
    length: int = 1  # of whole days


def read(
    text: str, *, ago: bool = False, due: bool = False, never: bool = False, days: bool = False
) -> GivenTime:
    """Read a time.

    Args:
        text: What was typed.
        ago: Whether it is for a filter: ``-10m`` and ``10 min ago`` are times as well.
        due: Whether ``by:+30m`` is one.
        never: Whether ``never`` is one.
        days: Whether a day without a time of day is the whole day: ``tomorrow``, ``this week``.

    Raises:
        TypedTimeError: it is none; the sentence has examples.
    """
    try:
        return _read(" ".join(text.split()), ago=ago, due=due, never=never, days=days)
    except (InvalidDueTime, ValueError, OverflowError) as error:
        if isinstance(error, TypedTimeError):
            raise
        expected = _meant(text) or _expected(text, ago=ago, due=due, never=never)
        raise TypedTimeError(f"{text[:_SHOWN]!r} is not a time; {expected}") from None


def read_span(text: str) -> GivenSpan:
    """Read a span of due times, for a filter.

    A day is from its begin to its end. A time alone is the end of a span without a begin.
    ``A..B`` is from one to the other, with the whole last day; either side may be empty.

    Args:
        text: What was typed.

    Raises:
        TypedTimeError: it is none; the sentence has examples.
    """
    first, joint, last = text.partition(_TO)
    if joint and (first.strip() or last.strip()):
        ends = (read(end, ago=True, days=True) if end.strip() else None for end in (first, last))
        return GivenSpan(text, *ends)
    if joint or not text.strip():
        raise TypedTimeError(f"{text[:_SHOWN]!r} is not a time; expected {_A_SPAN}")
    given = read(text, ago=True, days=True)
    return GivenSpan(text, given if given.kind == "days" else None, given)


def is_day(text: str) -> bool:
    """Return whether the text is a day without its time of day, such as ``tomorrow``."""
    return _dates(text.lower(), _For.DUE) is not None


def _meant(text: str) -> str:
    """Return the question for a misspelt word, such as ``tomorow``; empty if there is none."""
    words = text.split()
    right = [_spelt(word.lower()) or word for word in words]
    return f"did you mean {' '.join(right)}?" if right != words else ""


def _spelt(word: str) -> str | None:
    known = (*_NEAR, "noon", *_DAY_NAMES, *_MONTH_NAMES)
    if not word.isalpha() or any(each.startswith(word) for each in known):
        return None
    return next(iter(get_close_matches(word, known, 1, _ALIKE)), None)


def _read(text: str, *, ago: bool, due: bool, never: bool, days: bool) -> GivenTime:
    if never and text.lower() == "never":
        return GivenTime("never", None)
    if due and text.lower().startswith(_BY):
        return GivenTime("by", _checked(clock.by, _signed(text[len(_BY) :])))
    span = _from_now(text.lower(), ago=ago)
    if span is not None:
        return GivenTime("after", _checked(clock.after, span))
    whole = _whole(text) if days else None
    if whole is not None:
        return GivenTime("days", whole)
    try:
        value = float(text) if _NUMBER.fullmatch(text) else clock.read(text)
    except InvalidDueTime:
        day = _day(text, _For.FILTER if ago else _For.DUE)
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


def _day(text: str, what: _For) -> _Day | None:
    """Read a day and a time of day; return ``None`` if the text is none."""
    words, zone = _in_zone(text)
    words = _AT_NOON.sub(rf"\g<1>{_NOON}:00", words)
    found = _OF_DAY.search(words)
    if not found or not (found[2] or found[4]):
        dates = _dates(words.lower(), what)
        if dates is None or not dates(_LEAP, lambda _: True):
            return None
        raise TypedTimeError(f"{text[:_SHOWN]!r} has no time of day; type {words} 9:00")
    at, words = _of_day(*found.groups()), words[: found.start()].lower()
    dates = _dates(words, what) if words else partial(_next, what)
    return None if dates is None else _Day(text, dates, at, zone)


def _whole(text: str) -> _Day | None:
    """Read whole days; return ``None`` if the text is none."""
    words, zone = _in_zone(text)
    if words.lower() in _WEEKS:
        return _Day(text, partial(_monday, _WEEKS[words.lower()]), time(), zone, length=7)
    dates = _dates(words.lower(), _For.WHOLE)
    return None if dates is None else _Day(text, dates, time(), zone)


def _in_zone(text: str) -> tuple[str, tzinfo | None]:
    """Return the words of a text, and the zone behind them."""
    words, zone = text.replace(",", " ").strip(), None
    if found := _ZONE.search(words):
        zone, words = _known_zone(found[1]), words[: found.start()]
    return " ".join(words.split()), zone


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


def _dates(words: str, what: _For) -> _Dates | None:
    """Return what gives the dates that the words mean; ``None`` if they are no day."""
    if words in _NEAR:
        return lambda today, _: [today + _NEAR[words] * _A_DAY]
    name, _, rest = words.partition(" ")
    weekday = _place(name, _DAY_NAMES)
    if weekday is None:
        return _date(words, what)
    if not rest:
        return partial(_weekday, weekday, what)
    dates = _date(rest, what)
    if dates is None:
        return None
    return lambda today, is_over: [day for day in dates(today, is_over) if day.weekday() == weekday]


def _monday(ahead: int, today: date, _: _IsOver) -> list[date]:
    return [today + timedelta(ahead - today.weekday())]


def _next(what: _For, today: date, is_over: _IsOver) -> list[date]:
    return [today + _A_DAY if is_over(today) and what is _For.DUE else today]


def _weekday(weekday: int, what: _For, today: date, is_over: _IsOver) -> list[date]:
    ahead = today + timedelta((weekday - today.weekday()) % 7)
    if ahead > today:
        return [ahead - _A_WEEK, ahead] if what is _For.FILTER else [ahead]
    if what is not _For.DUE:
        return [today]
    return [today + _A_WEEK] if is_over(today) else [today, today + _A_WEEK]


def _date(words: str, what: _For) -> _Dates | None:
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
    return partial(_in_years, days, year, what)


def _in_years(
    days: list[tuple[int, int]], year: int | None, what: _For, today: date, is_over: _IsOver
) -> list[date]:
    found: list[date | None] = []
    for day, month in days:
        this = _valid(year or today.year, month, day)
        if year is None and what is _For.WHOLE:
            years = (_valid(today.year + more, month, day) for more in (-1, 0, 1))
            found.append(min(filter(None, years), key=lambda one: abs(one - today), default=None))
            continue
        found.append(this)
        if year is None and what is _For.DUE and (this is None or is_over(this)):
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
    return _only(day, [moment for date in dates for moment in _instants(date, day.at, zone)], zone)


def _ends(day: _Day, now: datetime, zone: tzinfo) -> tuple[datetime, datetime]:
    """Return the begin and the end of whole days."""
    zone = day.zone or zone
    dates = day.dates(now.astimezone(zone).date(), lambda _: False)
    begins = {_begin(date, zone): date for date in dates}
    first = begins[_only(day, list(begins), zone)]
    return _begin(first, zone), _begin(first + day.length * _A_DAY, zone)


def _begin(day: date, zone: tzinfo) -> datetime:
    """Return the first instant of a day, which is none at midnight if clocks leave that out."""
    instants = _instants(day, time(), zone)
    return next((at for at in instants if at.astimezone(zone).date() == day), instants[-1])


def _only(day: _Day, moments: list[datetime], zone: tzinfo) -> datetime:
    """Return the only one of the moments that a text can mean.

    Raises:
        TypedTimeError: there is none, or more than one.
    """
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
