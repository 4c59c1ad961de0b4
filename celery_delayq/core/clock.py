"""Converts times between the forms that you give and the one that the store keeps.

You give aware or naive datetimes, Unix seconds, ISO 8601 text, timedeltas or seconds. The store
keeps whole milliseconds since 1970 in UTC. A future time is rounded **up**: a task may be a
fraction of a millisecond late, never early. A time that Redis's clock has reached is due
in the clock's current millisecond at the latest; see ``due_in_ms`` in the scripts, which get
microseconds.

A naive datetime is wall time in the app's time zone; :func:`instant` has zoneinfo's rule for the
hours that clocks repeat or leave out. In a message, where Celery's workers read it, it is UTC:
:func:`celery_time`. The guide has a table of who reads which.

This module is also the only one that reads this process's clocks; a test sets them here.
"""

from __future__ import annotations

import math
import re
import time
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta, timezone, tzinfo
from typing import Any, Literal, Union
from zoneinfo import ZoneInfo

from celery.utils.time import LocalTimezone
from celery.utils.time import timezone as celerys
from dateutil.parser import isoparse

from .errors import InvalidDueTime, InvalidOption, NotADueTime

__all__ = [
    "MAX_DUE_MS",
    "DelayInput",
    "LocalTime",
    "TimeInput",
    "When",
    "after",
    "at",
    "by",
    "celery_time",
    "due_in_ms",
    "from_ms",
    "instant",
    "local",
    "monotonic",
    "one_of",
    "read",
    "sleep",
    "to_ms",
    "utc_now",
]


_A_DAY = timedelta(days=1)


def instant(wall: datetime, zone: tzinfo) -> datetime:
    """Return the aware time at which the clocks of *zone* show the naive time *wall*."""
    if isinstance(zone, (ZoneInfo, timezone)):
        return wall.replace(tzinfo=zone)
    # Zones of other libraries may know neither the offset of a wall time (pytz) nor this rule
    # (dateutil), but each of them knows what its clocks show at a moment.
    as_utc = wall.replace(fold=0)
    offsets = [_offset(as_utc - _A_DAY, zone), _offset(as_utc + _A_DAY, zone)]
    moments = [as_utc - offset for offset in offsets]
    shown = [at for at, offset in zip(moments, offsets, strict=True) if _offset(at, zone) == offset]
    moment = shown[0] if len(shown) == 1 else moments[wall.fold]
    return moment.replace(tzinfo=timezone.utc)


def _offset(utc: datetime, zone: tzinfo) -> timedelta:
    """Return how far ahead a zone's clocks are at a moment, in UTC without ``tzinfo``."""
    return zone.fromutc(utc.replace(tzinfo=zone)).replace(tzinfo=None) - utc


class LocalTime(tzinfo):
    """This machine's time zone.

    That of Celery 5.4 is a day off west of Greenwich, where it converts from UTC.
    """

    key = "local"

    def fromutc(self, when: datetime) -> datetime:
        return when.replace(tzinfo=timezone.utc).astimezone().replace(tzinfo=self)

    def utcoffset(self, when: datetime | None) -> timedelta | None:
        if when is None:
            return None
        wall = when.replace(tzinfo=None)
        return wall - instant(wall, self).replace(tzinfo=None)

    def dst(self, when: datetime | None) -> None:
        """Unknown."""

    def tzname(self, when: datetime | None) -> str:  # noqa: ARG002
        return self.key


def local() -> tzinfo:
    """Return this machine's time zone; by its name, if Celery finds that."""
    zone: tzinfo = celerys.local
    return LocalTime() if isinstance(zone, LocalTimezone) else zone


TimeInput = Union[datetime, float, int, str]
DelayInput = Union[timedelta, float, int]

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)

# Up to here, 2255-06-05, microseconds are exact in a double, the type of a sorted set's score.
MAX_DUE_MS = 2**53 // 1000
_MICROSECOND = timedelta(microseconds=1)

_TIME = "an aware datetime, Unix time in seconds, or ISO 8601 text, before 2255-06-05"
_DELAY = "a timedelta or a number of seconds that ends before 2255-06-05"
_NOT_A_TIME = "; a delay goes to delay_for, or after="
_NOT_A_DELAY = "; a time goes to delay_until, or at="
_MILLISECONDS = "; milliseconds are divided by 1000"
_NO_TIME_OF_DAY = "; a date has no time of day: make it a datetime"
_ARGUMENTS = "; the time comes first, then the task's arguments"
_A_DATE = "; text begins with a whole date, such as 2030-01-31T09:00"
_CELERYS = "an ISO 8601 text that Celery can read"

# ISO 8601 also has 1530 (a year), 2030-01 and 2030123; dateutil takes any letter for the T, so that
# 20300131123000 is 23:00. Nobody means that.
_DATED = re.compile(r"\d{4}-\d\d-\d\d([Tt ]|$)|\d{8}[Tt ]")

# Text that was probably meant as a delay: 60, 5m, +5 min.
_SPAN = re.compile(r"\+?\d{1,8}(\.\d+)?\s?([smhdw]|$)")

# A time before 1980, as a number, was surely meant as a delay, and 32 years as a time.
_EARLIEST = 315_532_800
_LONGEST = 1_000_000_000


@dataclass(frozen=True)
class When:
    """A due time: ``at`` an instant, ``after`` now, or ``by`` an offset from the current due time.

    The store resolves the last two, by Redis's clock. ``ms`` is rounded up, by ``rounded_us``.
    """

    mode: Literal["at", "after", "by"]
    ms: int
    given: Any = field(default=None, compare=False)
    rounded_us: int = field(default=0, compare=False)

    @property
    def us(self) -> int:
        """The same in microseconds, not rounded."""
        return self.ms * 1000 - self.rounded_us

    def seconds_from(self, begin: datetime) -> float:
        """Seconds from *begin*, when a delay begins, to the due time."""
        return self.ms / 1000 - (begin.timestamp() if self.mode == "at" else 0)


def at(value: TimeInput, zone: tzinfo) -> When:
    """An absolute due time.

    Args:
        value: Aware datetime; naive datetime, read as wall time in *zone*; Unix time in
            seconds; or text, see :func:`read`. A time in the past means "at once".
        zone: Time zone of naive values.

    Raises:
        InvalidDueTime: *value* is not finite, not readable, or past 2255-06-05; or a number that
            was surely meant as a delay: a time after 0 and before 1980.
        NotADueTime: *value* is of another type (``bool`` and ``None`` included).
    """
    if isinstance(value, (int, float)) and value is not True and 0 < value < _EARLIEST:
        raise InvalidDueTime(value, _TIME + _NOT_A_TIME)
    return _when("at", max(0, _to_us(value, zone)), value, _TIME)


def after(value: DelayInput) -> When:
    """A due time relative to now by Redis's clock; a negative delay means "at once".

    Raises:
        InvalidDueTime: *value* is not finite, or ends past 2255-06-05; or a number of more than 31
            years, which was surely meant as a time.
        NotADueTime: *value* is neither a timedelta nor a number.
    """
    if isinstance(value, (int, float)) and _LONGEST < value <= MAX_DUE_MS / 1000:
        raise InvalidDueTime(value, _DELAY + _NOT_A_DELAY)
    return _when("after", max(0, _delay_us(value)), value, _DELAY)


def by(value: DelayInput) -> When:
    """A due time relative to the current one; negative is earlier. Raises as :func:`after`."""
    return _when("by", max(-MAX_DUE_MS * 1000, _delay_us(value)), value, _DELAY)


def one_of(zone: tzinfo, **times: Any) -> When:
    """Return the one due time that is not ``None``.

    Args:
        zone: Time zone of naive values.
        **times: The values of ``at``, ``after`` and ``by`` that the caller takes, or ``None``.

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
    """Seconds on a clock that is never set."""
    return time.monotonic()


def seconds_left(until: float) -> float:
    """Seconds to *until*, by that clock; at least 1 ms, as 0 tells a socket not to wait."""
    return max(until - monotonic(), 0.001)


def sleep(seconds: float) -> None:
    """Wait."""
    time.sleep(seconds)  # noqa: TID251 - all other modules wait by this


def utc_now() -> datetime:
    """This machine's time, in UTC. The store has its own; see ``clock_us`` in its scripts."""
    return datetime.now(timezone.utc)


def to_ms(value: TimeInput, zone: tzinfo) -> int:
    """Milliseconds since 1970, rounded up; see :func:`at` for what *value* may be."""
    return _ceil_ms(_to_us(value, zone))


def from_ms(ms: int) -> datetime:
    """The aware datetime, in UTC, of *ms* milliseconds since 1970."""
    return EPOCH + timedelta(milliseconds=ms)


def read(text: str) -> datetime:
    """Return the time that ISO 8601 text gives, aware if it has an offset.

    It begins with a whole date: ``YYYY-MM-DD``, alone or with a time of day after ``T`` or a space;
    or ``YYYYMMDD`` with such a time of day.

    Raises:
        InvalidDueTime: it is another text.
    """
    hint = _NOT_A_TIME if _SPAN.match(text) else ""
    try:
        parsed: datetime = isoparse(text)
    except (ValueError, OverflowError):
        raise InvalidDueTime(text, _TIME + hint) from None
    if not _DATED.match(text):
        raise InvalidDueTime(text, _TIME + _A_DATE)
    return parsed


def celery_time(value: Any) -> datetime:
    """Return the time, in UTC, of a message's ``eta`` or ``expires``, or of a retry.

    Celery's workers read any text of ISO 8601, and a naive time as UTC, whatever ``timezone`` and
    ``enable_utc`` are (``celery.worker.request.Request``, in 5.4 as in 5.7).

    Raises:
        InvalidDueTime: they could not read it.
    """
    try:
        moment: datetime = value if isinstance(value, datetime) else isoparse(value)
        if moment.utcoffset() is None:
            return moment.replace(tzinfo=timezone.utc)
        return moment.astimezone(timezone.utc)
    except (ValueError, OverflowError, TypeError, AttributeError):
        raise InvalidDueTime(value, _CELERYS) from None


def due_in_ms(us: int, now_us: int) -> int:
    """The millisecond in which that time is due, the same as ``due_in_ms`` of the scripts."""
    return _ceil_ms(us) if us > now_us else min(_ceil_ms(us), now_us // 1000)


def _to_us(value: TimeInput, zone: tzinfo) -> int:
    if isinstance(value, str):
        value = read(value)
    if isinstance(value, datetime):
        return _whole_us(_since_epoch(value, zone))
    if isinstance(value, timedelta):
        raise NotADueTime(value, _TIME + _NOT_A_TIME)
    if isinstance(value, date):
        raise NotADueTime(value, _TIME + _NO_TIME_OF_DAY)
    return _seconds_to_us(value, _TIME)


def _since_epoch(value: datetime, zone: tzinfo) -> timedelta:
    # Another library's class may calculate in its own way (pendulum), or be no time at all
    # (pandas.NaT), so only its fields and its offset are read.
    try:
        offset = value.utcoffset()
        wall = datetime(
            value.year, value.month, value.day, value.hour, value.minute, value.second,
            value.microsecond, timezone.utc, fold=value.fold,
        )  # fmt: skip
        if offset is None:
            span = instant(wall.replace(tzinfo=None), zone) - EPOCH
        else:
            span = wall - EPOCH - offset
        return span + _MICROSECOND if getattr(value, "nanosecond", 0) else span
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidDueTime(value, _TIME) from error


def _delay_us(value: DelayInput) -> int:
    if isinstance(value, datetime) or (isinstance(value, str) and not _SPAN.match(value)):
        raise NotADueTime(value, _DELAY + _NOT_A_DELAY)
    return _whole_us(value) if isinstance(value, timedelta) else _seconds_to_us(value, _DELAY)


def _whole_us(span: timedelta) -> int:
    # As a plain timedelta: a subclass (pendulum's Duration) may calculate in its own way.
    return timedelta.__add__(span, timedelta(0)) // _MICROSECOND


def _ceil_ms(us: int) -> int:
    return -(-us // 1000)


def _seconds_to_us(value: object, expected: str) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        hint = _ARGUMENTS if isinstance(value, (list, tuple, dict)) else ""
        raise NotADueTime(value, expected + hint)
    # Infinities are refused as well; the distant past, beyond any timedelta, is not.
    if not -math.inf < value <= MAX_DUE_MS / 1000:
        hint = _MILLISECONDS if _EARLIEST * 1000 < value <= MAX_DUE_MS else ""
        raise InvalidDueTime(value, expected + hint)
    if value < -MAX_DUE_MS / 1000:
        return -MAX_DUE_MS * 1000
    # Through a timedelta, which rounds to microseconds as datetime.fromtimestamp does. A double has
    # no exact thousandths: rounding up the binary value of 1700000000.001 would yield 2 ms.
    return _whole_us(timedelta(seconds=float(value)))


def _when(mode: Literal["at", "after", "by"], us: int, value: object, expected: str) -> When:
    ms = _ceil_ms(us)
    if ms > MAX_DUE_MS:
        raise InvalidDueTime(value, expected)
    return When(mode, ms, value, ms * 1000 - us)
