"""The times of a rule: from a text, and a time zone, to the moments at which it fires.

A text has five fields, as crontab(5), or is ``every N s``. Fields that a clock change touches:

- If minute and hour are fixed, a time that comes twice counts once, at the first; one that is
  skipped counts at the first moment after the gap.
- If one of them begins with ``*``, the rule follows real time: no run is dropped, or doubled.

So does Debian's cron. cronsim reads the fields, and computes fixed times; real time is computed
here, as cronsim 2.8 skips an hour that a clock change has entered in its middle. Celery's own
``crontab`` compares wall-clock times: in the autumn of Europe/Berlin it drops the second ``*/30``
of the hour that comes twice.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from functools import lru_cache
from itertools import takewhile
from typing import Any
from zoneinfo import ZoneInfo

from celery.schedules import BaseSchedule, crontab
from celery.schedules import schedule as interval
from cronsim import CronSim, CronSimError

from ...core.clock import EPOCH
from ...core.errors import InvalidOption

SHORTEST = 1.0  # seconds between two runs
LONGEST = 366 * 86_400.0
DIALECTS = ("cron", "celery")
_EVERY = re.compile(r"every ([0-9]+(?:\.[0-9]{1,6})?) s")
_FIELDS = 5
_MINUTE = timedelta(minutes=1)
_YEARS = 50  # after which a text counts as one that never matches
_DAY, _WEEKDAY = 2, 4  # places of fields
_WILD = re.compile(r"\*(/\d+)?")
_ROUNDED = {
    timedelta(days=1): "0 0 * * *",
    timedelta(hours=1): "0 * * * *",
    timedelta(minutes=1): "* * * * *",
}
_EXPECTED = (
    "a timedelta, seconds, Celery's crontab or schedule, or a text of five fields such as "
    "'*/15 * * * *'"
)
_BOTH = (
    "a text that restricts the day of the month or the weekday; of both, cron means either and "
    "Celery means both: say dialect='cron' or dialect='celery'"
)


@dataclass(frozen=True)
class Timing:
    """The times of a rule.

    Attributes:
        text: Five fields, or ``every N s``.
        zone: The name of the zone of the fields.
        dialect: What a text means that restricts the day of the month and the weekday: ``cron``,
            either; ``celery``, both. Empty if it does not.
    """

    text: str
    zone: str = "UTC"
    dialect: str = ""

    @property
    def interval(self) -> timedelta | None:
        """Its interval; ``None`` if it has fields."""
        found = _EVERY.fullmatch(self.text)
        return timedelta(microseconds=round(float(found[1]) * 1_000_000)) if found else None

    def after(self, moment: datetime) -> Iterator[datetime]:
        """Yield the moments after *moment* at which the rule fires, in order, UTC."""
        interval = self.interval
        return _multiples(interval, moment) if interval else self._matches(moment)

    def next(self, moment: datetime) -> datetime | None:
        """Return the first moment after *moment* at which it fires; ``None``: never."""
        return next(self.after(moment), None)

    def latest(self, end: datetime, count: int, since: datetime) -> list[datetime]:
        """Return the last *count* moments after *since* and up to *end*, in order."""
        found = list[datetime]()
        for days in (1 / 24, 1, 32, 366, math.inf):
            begin = since if days == math.inf else max(since, end - timedelta(days))
            found = list(takewhile(lambda slot: slot <= end, self.after(begin)))
            if begin == since or len(found) >= count:
                break
        return found[-count:]

    def _matches(self, moment: datetime) -> Iterator[datetime]:
        fields = self.text.split()
        weekdays = None
        if self.dialect == "celery" and _restricts(fields):
            weekdays = CronSim(f"* * * * {fields[_WEEKDAY]}", EPOCH)
            fields[_WEEKDAY] = "*"
        zone, last = _zone(self.zone), moment
        is_wild = "*" in (fields[0][0], fields[1][0])
        matching = CronSim(" ".join(fields), moment.astimezone(zone))
        for found in _in_real_time(matching, moment, zone) if is_wild else matching:
            if weekdays is not None and not weekdays.match_dow(found.astimezone(zone).date()):
                continue
            utc = found.astimezone(timezone.utc)
            # Of a fixed time that comes twice, or falls into a gap, as another one does.
            if utc > last:
                yield utc
                last = utc


def timing_of(
    schedule: Any, *, tz: str | None = None, dialect: str = "", default_zone: str = "UTC"
) -> Timing:
    """Return the timing that a schedule means.

    Args:
        schedule: A timedelta, seconds, Celery's ``crontab`` or ``schedule``, or a text.
        tz: The name of the zone of its fields; by default *default_zone*.
        dialect: See :class:`Timing`; of a ``crontab`` it is ``celery``.
        default_zone: The app's zone.

    Raises:
        InvalidOption: it is none of these, the zone is unknown, or it never fires.
    """
    if dialect not in ("", *DIALECTS):
        raise InvalidOption("dialect", dialect, "cron or celery")
    zone = tz or default_zone
    try:
        _zone(zone)
    except (KeyError, ValueError, OSError, TypeError):
        raise InvalidOption("tz", zone, "the name of a time zone, such as Europe/Berlin") from None
    if type(schedule) in (crontab, interval) and schedule.nowfun is not None:
        given = f"{type(schedule).__name__}(nowfun=...)"
        raise InvalidOption("schedule", given, "one without nowfun; say tz=")
    if type(schedule) is crontab:
        text, dialect = _text_of(schedule), "celery"
    elif type(schedule) is interval and schedule.relative:
        text, dialect = _rounded(schedule), ""
    elif isinstance(schedule, str):
        text = " ".join(schedule.split())
    else:
        text = f"every {f'{_seconds(schedule):.6f}'.rstrip('0').rstrip('.')} s"
    return _checked(Timing(text, zone, dialect), schedule)


def read_schedule(schedule: Any) -> Any:
    """Return a schedule that a person wrote: seconds as a number, all else as it is."""
    if isinstance(schedule, str):
        with suppress(ValueError):
            return float(schedule)
    return schedule


def _checked(timing: Timing, given: Any) -> Timing:
    if found := _EVERY.fullmatch(timing.text):
        if not SHORTEST <= float(found[1]) <= LONGEST:
            raise InvalidOption("schedule", given, "an interval from 1 second to 366 days")
        return Timing(timing.text, timing.zone)
    fields = timing.text.split()
    if len(fields) != _FIELDS:
        raise InvalidOption("schedule", given, _EXPECTED)
    if _restricts(fields) and not timing.dialect:
        raise InvalidOption("schedule", given, _BOTH)
    kept = timing if _restricts(fields) else Timing(timing.text, timing.zone)
    try:
        never = kept.next(EPOCH) is None
    except (CronSimError, ValueError) as error:
        raise InvalidOption("schedule", given, f"{_EXPECTED} ({error})") from None
    if never:
        raise InvalidOption("schedule", given, "a text that matches a day")
    return kept


def _seconds(schedule: Any) -> float:
    if type(schedule) is interval:
        schedule = schedule.run_every
    if isinstance(schedule, timedelta):
        return schedule.total_seconds()
    if isinstance(schedule, (int, float)) and not isinstance(schedule, bool):
        with suppress(OverflowError):
            return float(schedule)
    kind = type(schedule).__name__
    if isinstance(schedule, BaseSchedule) or callable(schedule):
        raise InvalidOption("schedule", kind, f"{_EXPECTED}; {kind} is not supported")
    raise InvalidOption("schedule", schedule, _EXPECTED)


def _rounded(schedule: interval) -> str:
    """Return the fields that say the same as an interval that Celery rounds to its own unit."""
    if text := _ROUNDED.get(schedule.run_every):
        return text
    given = f"schedule({schedule.seconds:g}, relative=True)"
    raise InvalidOption("schedule", given, "a crontab, or relative=True of a day, hour or minute")


def _text_of(schedule: crontab) -> str:
    """Return the fields of Celery's crontab; a ``*`` stays one, as it follows real time."""
    fields = (
        (schedule._orig_minute, schedule.minute, 60),
        (schedule._orig_hour, schedule.hour, 24),
        (schedule._orig_day_of_month, schedule.day_of_month, 31),
        (schedule._orig_month_of_year, schedule.month_of_year, 12),
        (schedule._orig_day_of_week, schedule.day_of_week, 7),
    )
    return " ".join(_field(given, values, count) for given, values, count in fields)


def _field(given: Any, values: set[int], count: int) -> str:
    if isinstance(given, str) and _WILD.fullmatch(given):
        return given
    return "*" if len(values) == count else ",".join(map(str, sorted(values)))


def _restricts(fields: list[str]) -> bool:
    """Whether fields restrict both the day of the month and the weekday."""
    return not (fields[_DAY].startswith("*") or fields[_WEEKDAY].startswith("*"))


def _in_real_time(fields: CronSim, moment: datetime, zone: ZoneInfo) -> Iterator[datetime]:
    """Yield each minute after *moment* whose wall-clock time matches, in UTC."""
    at = moment.astimezone(timezone.utc).replace(second=0, microsecond=0) + _MINUTE
    end = at + timedelta(days=_YEARS * 366)
    while at < end:
        wall = at.astimezone(zone)
        if wall.month not in fields.months or not fields.match_day(wall.date()):
            minutes = 24 * 60 - 60 * wall.hour - wall.minute
        elif wall.hour not in fields.hours:
            minutes = 60 - wall.minute
        else:
            minutes = 1
            if wall.minute in fields.minutes:
                yield at
                end = at + timedelta(days=_YEARS * 366)
        # The next minute that may match, unless the clock is changed on the way.
        ahead = at + minutes * _MINUTE
        is_changed = minutes > 1 and ahead.astimezone(zone).utcoffset() != wall.utcoffset()
        at = at + _MINUTE if is_changed else ahead


@lru_cache(maxsize=200)
def _zone(name: str) -> ZoneInfo:
    return ZoneInfo(name)


def _multiples(interval: timedelta, moment: datetime) -> Iterator[datetime]:
    """Yield the multiples of an interval since 1970, so that no start or deploy moves them."""
    count = (moment - EPOCH) // interval
    while True:
        count += 1
        yield EPOCH + interval * count
