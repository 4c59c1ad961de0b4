"""Times as people give them, and as the store keeps them.

People give aware or naive datetimes, Unix seconds, ISO 8601 text, timedeltas, seconds. The
store keeps whole milliseconds since 1970 in UTC, rounded **up**: a task may be a fraction of a
millisecond late, never early.

A naive datetime is wall time in the app's time zone, with its ``fold`` as given.

It is also the one place where this process's clocks are read; a test sets them here.
"""

from __future__ import annotations

import math
import re
import time
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta, timezone, tzinfo
from typing import Any, Literal, TypeGuard, Union

from dateutil.parser import isoparse

from .errors import InvalidDueTime, InvalidOption, NotADueTime

__all__ = [
    "MAX_DUE_MS",
    "DelayInput",
    "TimeInput",
    "When",
    "after",
    "at",
    "by",
    "from_ms",
    "monotonic",
    "one_of",
    "sleep",
    "to_ms",
    "utc_now",
]

TimeInput = Union[datetime, float, int, str]
DelayInput = Union[timedelta, float, int]

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)

# Microseconds up to here are exact in a double, which is what a sorted set's score is: 2255-06-05.
MAX_DUE_MS = 2**53 // 1000
_MILLISECOND = timedelta(milliseconds=1)
_MICROSECOND = timedelta(microseconds=1)

_TIME = "an aware datetime, Unix time in seconds, or ISO 8601 text, before 2255-06-05"
_DELAY = "a timedelta or a number of seconds that ends before 2255-06-05"
_NOT_A_TIME = "; a delay goes to delay_for, or after="
_NOT_A_DELAY = "; a time goes to delay_until, or at="
_MILLISECONDS = "; milliseconds are divided by 1000"
_A_DAY = "; a date has no time of day: make it a datetime"
_ARGUMENTS = "; the time comes first, and the task's arguments behind it"

# Text that is meant as a delay: 60, 5m, +5 min.
_SPAN = re.compile(r"\+?\d{1,8}(\.\d+)?\s?([smhdw]|$)")

# A number that is a moment before 1980 is meant as a delay, and a delay of 32 years as a moment.
_EARLIEST = 315_532_800
_LONGEST = 1_000_000_000


@dataclass(frozen=True)
class When:
    """A due time: ``at`` an instant, ``after`` now, or ``by`` so much from the present due time.

    The last two are resolved by the store, against Redis's clock.
    """

    mode: Literal["at", "after", "by"]
    ms: int
    given: Any = field(default=None, compare=False)


def at(value: TimeInput, zone: tzinfo) -> When:
    """An absolute due time.

    Args:
        value: Aware datetime; naive datetime, read as wall time in *zone*; Unix time in
            seconds; or ISO 8601 text. A time in the past means "at once".
        zone: Time zone of naive values.

    Raises:
        InvalidDueTime: *value* is not finite, not readable, or past 2255-06-05; or a number that is
            surely a delay: above 0, and before 1980.
        NotADueTime: *value* is of another type (``bool`` and ``None`` included).
    """
    if _is_number(value) and 0 < value < _EARLIEST:
        raise InvalidDueTime(value, _TIME + _NOT_A_TIME)
    return When("at", max(0, _not_too_late(to_ms(value, zone), value, _TIME)), value)


def after(value: DelayInput) -> When:
    """A due time relative to now by Redis's clock; a negative delay means "at once".

    Raises:
        InvalidDueTime: *value* is not finite, or ends past 2255-06-05; or a number of more than 31
            years, which is surely a moment.
        NotADueTime: *value* is neither a timedelta nor a number.
    """
    if _is_number(value) and _LONGEST < value <= MAX_DUE_MS / 1000:
        raise InvalidDueTime(value, _DELAY + _NOT_A_DELAY)
    return When("after", max(0, _delay_ms(value)), value)


def by(value: DelayInput) -> When:
    """A due time relative to the present one; negative is earlier. Raises as :func:`after`."""
    return When("by", max(-MAX_DUE_MS, _delay_ms(value)), value)


def one_of(zone: tzinfo, **times: Any) -> When:
    """The one due time that was given.

    Args:
        zone: Time zone of naive values.
        **times: Those of ``at``, ``after`` and ``by`` that can be given, or ``None``.

    Raises:
        InvalidOption: none was given, or more than one.
        InvalidDueTime: as :func:`at`, :func:`after`, :func:`by`.
    """
    given = {name: value for name, value in times.items() if value is not None}
    if len(given) != 1:
        raise InvalidOption("time", given or None, f"exactly one of {', '.join(times)}")
    ((name, value),) = given.items()
    if name == "at":
        return at(value, zone)
    return by(value) if name == "by" else after(value)


def monotonic() -> float:
    """Seconds on a clock that nobody sets."""
    return time.monotonic()


def seconds_left(until: float) -> float:
    """Seconds to *until*, by that clock, or a moment: to a socket, no time means "do not wait"."""
    return max(until - monotonic(), 0.001)


def sleep(seconds: float) -> None:
    """Wait."""
    time.sleep(seconds)  # noqa: TID251 - everybody else waits here


def utc_now() -> datetime:
    """This machine's time, in UTC. The store has its own; see ``clock_us`` in its scripts."""
    return datetime.now(timezone.utc)


def to_ms(value: TimeInput, zone: tzinfo) -> int:
    """Milliseconds since 1970, rounded up; see :func:`at` for what *value* may be."""
    if isinstance(value, str):
        value = _parsed(value)
    if isinstance(value, datetime):
        return _ceil_ms(_since_epoch(value, zone))
    if isinstance(value, timedelta):
        raise NotADueTime(value, _TIME + _NOT_A_TIME)
    if isinstance(value, date):
        raise NotADueTime(value, _TIME + _A_DAY)
    return _seconds_to_ms(value, _TIME)


def from_ms(ms: int) -> datetime:
    """The aware datetime, in UTC, of *ms* milliseconds since 1970."""
    return EPOCH + timedelta(milliseconds=ms)


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _parsed(text: str) -> datetime:
    try:
        parsed: datetime = isoparse(text)
    except (ValueError, OverflowError):
        hint = _NOT_A_TIME if _SPAN.match(text) else ""
        raise InvalidDueTime(text, _TIME + hint) from None
    return parsed


def _since_epoch(value: datetime, zone: tzinfo) -> timedelta:
    # A class of somebody else's may do sums in its own way (pendulum's), or be no time at all
    # (pandas.NaT): only its fields and its offset are asked for.
    try:
        offset = value.utcoffset()
        moment = datetime(
            value.year, value.month, value.day, value.hour, value.minute, value.second,
            value.microsecond, timezone.utc if offset is not None else zone, fold=value.fold,
        )  # fmt: skip
        span = moment - EPOCH if offset is None else moment - EPOCH - offset
        return span + _MICROSECOND if getattr(value, "nanosecond", 0) else span
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidDueTime(value, _TIME) from error


def _delay_ms(value: DelayInput) -> int:
    if isinstance(value, datetime) or (isinstance(value, str) and not _SPAN.match(value)):
        raise NotADueTime(value, _DELAY + _NOT_A_DELAY)
    ms = _ceil_ms(value) if isinstance(value, timedelta) else _seconds_to_ms(value, _DELAY)
    return _not_too_late(ms, value, _DELAY)


def _ceil_ms(span: timedelta) -> int:
    # A plain one, of which a subclass (pendulum's Duration) cannot change the sums.
    span = timedelta.__add__(span, timedelta(0))
    whole, rest = divmod(span, _MILLISECOND)
    return whole + bool(rest)


def _seconds_to_ms(value: object, expected: str) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        hint = _ARGUMENTS if isinstance(value, (list, tuple, dict)) else ""
        raise NotADueTime(value, expected + hint)
    # Infinities are refused as well; the distant past, which has no timedelta, is not.
    if not -math.inf < value <= MAX_DUE_MS / 1000:
        hint = _MILLISECONDS if _EARLIEST * 1000 < value <= MAX_DUE_MS else ""
        raise InvalidDueTime(value, expected + hint)
    if value < -MAX_DUE_MS / 1000:
        return -MAX_DUE_MS
    # Through a timedelta, which rounds to microseconds as datetime.fromtimestamp does: a double has
    # no exact thousandths, and rounding up its binary value makes 1700000000.001 two milliseconds.
    return _ceil_ms(timedelta(seconds=float(value)))


def _not_too_late(ms: int, value: object, expected: str) -> int:
    if ms > MAX_DUE_MS:
        raise InvalidDueTime(value, expected)
    return ms
