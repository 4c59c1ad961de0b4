"""The plan of a rule: its signature, and the times at which it fires.

    a text and a zone --> Timing --> moments          a row --> Plan: signature, Timing, terms
    an entry of beat ---> Taken ---> where the rule that takes it over begins

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

import json
import math
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from functools import lru_cache
from hashlib import sha1
from itertools import takewhile
from typing import Any
from zoneinfo import ZoneInfo

from celery import Celery
from celery.app.task import Task
from celery.canvas import Signature
from celery.schedules import BaseSchedule, crontab
from celery.schedules import schedule as interval
from cronsim import CronSim, CronSimError
from kombu.utils.json import dumps, loads

from ...core.clock import EPOCH
from ...core.errors import InvalidOption
from ...core.message.body import is_canvas, renamed
from ...core.scheduling.options import AFTER, AT, KEY, TAGS, entry_options_of, options_of_entry
from ...core.store.keys import checked_name
from ...core.store.record import MOST_TAGS
from ...operations.edits import KEPT, made_anew
from ..rule_store import Stored, ms_of

FORMAT = 1
MISSED = ("one", "none", "all")
SOON = timedelta(seconds=2)  # so long beat goes on with an entry, as it may be about to send it
SHORTEST = 1.0  # seconds between two runs
LONGEST = 366 * 86_400.0
DIALECTS = ("cron", "celery")
_EVERY = re.compile(r"every ([0-9]+(?:\.[0-9]{1,6})?) s")
_FIELDS = 5
_MS = timedelta(milliseconds=1)
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


LONGEST_JITTER = 86_400.0


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


@dataclass(frozen=True)
class Plan:
    """What a rule is: all that its digest is of.

    Attributes:
        signature: The fields of a signature, as Celery's JSON has them.
        timing: When it fires.
        missed: What becomes of slots at which nobody scanned: ``one``, the latest is written;
            ``none``; or ``all``.
        jitter: By up to how many seconds each run is later than its slot; always by the same.
        tags: Tags of its runs, beside its own.
        key: The unique key of its runs, or empty.
    """

    signature: str
    timing: Timing
    missed: str = "one"
    jitter: float = 0.0
    tags: tuple[str, ...] = ()
    key: str = ""

    @property
    def text(self) -> str:
        timing = [self.timing.text, self.timing.zone, self.timing.dialect]
        facts = [self.signature, timing, self.missed, self.jitter, self.tags, self.key]
        return json.dumps([FORMAT, *facts], separators=(",", ":"))

    @property
    def digest(self) -> str:
        return sha1(self.text.encode(), usedforsecurity=False).hexdigest()

    @classmethod
    def read(cls, text: str) -> Plan:
        """Read the text of a plan.

        Raises:
            ValueError: another program, or a later version, wrote it.
        """
        made, signature, timing, missed, jitter, tags, key = json.loads(text)
        if made != FORMAT:
            raise ValueError(f"rule format {made!r} is unknown")
        return cls(signature, Timing(*timing), missed, jitter, tuple(tags), key)

    def signature_of(self, app: Celery) -> Signature[Any]:
        """Return its signature, for an app."""
        made: Signature[Any] = app.signature(loads(self.signature))
        return made

    def offset(self, name: str) -> timedelta:
        """Return by how much jitter lets the runs of a rule with this name be later."""
        part = int.from_bytes(sha1(name.encode(), usedforsecurity=False).digest()[:6], "big")
        return timedelta(milliseconds=int(self.jitter * 1000 * part / 256**6))


@dataclass(frozen=True)
class Taken:
    """An entry of beat that a rule takes over.

    Attributes:
        last_run: When beat sent it last; ``None``: the rule begins as an entry of a new beat does.
        behind: How much later beat may have sent it, without having stored that.
        deadline: How late beat sends a slot of a crontab at most; ``None``: however late.
    """

    last_run: datetime | None = None
    behind: timedelta = timedelta(0)
    deadline: timedelta | None = None

    def beginning(self, timing: Timing, delay: timedelta, now: datetime) -> dict[str, str]:
        """Return the fields of a row by which its first run is where beat's next one would be.

        Until that run, ``since``, beat sends the entry, and then no longer.
        """
        first = since = self._due(timing, self.last_run or now)
        soon = now + SOON
        if self._is_at_once(timing, since, now):
            # Beat sends it once, and counts an interval from then on.
            first = now if timing.interval else timing.latest(now, 1, since - _MS)[0]
        elif self.last_run is not None:
            if timing.interval:
                first += timing.interval * max(0, (soon - first) // timing.interval + 1)
            else:
                first = self._due(timing, max(soon, first - _MS))
            since = first
        phase = (first - EPOCH) % timing.interval if timing.interval else timedelta(0)
        return {
            "offset": str(-(-(delay + phase) // _MS)),
            "last": str(ms_of(min(soon, first - phase - (timing.interval or _MINUTE)))),
            "since": str(ms_of(since)),
        }

    def _due(self, timing: Timing, last_run: datetime) -> datetime:
        if timing.interval:
            return last_run + timing.interval
        return timing.next(last_run) or last_run + timedelta(days=366)

    def _is_at_once(self, timing: Timing, due: datetime, now: datetime) -> bool:
        """Whether a run is overdue that beat cannot have sent."""
        if due >= now - self.behind:
            return False
        if timing.interval or self.deadline is None:
            return True
        return timing.latest(now, 1, due - _MS)[0] >= now - self.deadline


def has_own_apply_async(task: Any) -> bool:
    """Whether a task has an ``apply_async`` of its own, which may do more than send.

    It may take a lock, look whether the task runs already, or send nothing.
    """
    first = next(kind for kind in type(task).__mro__ if "apply_async" in vars(kind))
    return first is not Task or "apply_async" in vars(task)


def text_of(signature: Signature[Any]) -> str:
    """Return a signature's fields as text."""
    return str(dumps(dict(signature.clone())))


def plan_of(rule: Stored) -> Plan:
    """Return a rule's plan, with the schedule that a person gave it, if one did.

    Raises:
        ValueError: this version cannot read it.
    """
    plan = plan_in_code(rule)
    return replace(plan, timing=Timing(*rule.edit.timing)) if rule.edit else plan


def plan_in_code(rule: Stored) -> Plan:
    """Return the plan that code says, or that an import made.

    Raises:
        ValueError: this version cannot read it.
    """
    if rule.newer:
        raise ValueError(rule.newer)
    try:
        return Plan.read(rule.row["plan"])
    except (TypeError, RecursionError) as error:
        raise ValueError(str(error)) from error


def checked_plan(
    signature: Signature[Any], timing: Timing, missed: str, jitter: float, tags: Sequence[str]
) -> Plan:
    """Return the plan of a rule.

    Raises:
        InvalidOption: an argument is none.
        TypeError: the task does not take the signature's arguments.
    """
    if not isinstance(signature.task, str) or not signature.task:
        raise InvalidOption("signature", signature.task, "one of a task with a name")
    if is_canvas(signature):
        raise InvalidOption("signature", signature.task, "a plain task, which may start a canvas")
    if times := sorted({AT, AFTER, "eta", "countdown"} & {*signature.options}):
        raise InvalidOption("signature", times[0], "one without a time of its own")
    if missed not in MISSED:
        raise InvalidOption("missed", missed, "one, none or all")
    if not _is_number(jitter) or not 0 <= jitter <= LONGEST_JITTER:
        raise InvalidOption("jitter", jitter, "a number of seconds from 0 to 86400")
    try:
        text = text_of(signature)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidOption("signature", str(error), "arguments that are JSON") from error
    task = signature.app.tasks.get(signature.task)
    entry_options_of(options_of_entry(signature.options), task)
    if task is not None and task.typing and not has_own_apply_async(task):
        task.__header__(*signature.args, **signature.kwargs)  # as Celery does before it sends
    key = str(signature.options.get(KEY) or "")
    given = [tag for some in (tags, signature.options.get(TAGS)) for tag in _tags_of(some)]
    return Plan(text, timing, missed, float(jitter), tuple(dict.fromkeys(given)), key)


def _tags_of(tags: Any) -> list[str]:
    if not isinstance(tags or [], (list, tuple, set, frozenset)) or len(tags or []) >= MOST_TAGS:
        raise InvalidOption("tags", tags, f"up to {MOST_TAGS - 1} tags")
    return [checked_name("tag", tag) for tag in tags or []]


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def rewritten(app: Celery, plan: Plan, task: Any, change: Any) -> Plan | None:
    """Return a plan that fits other code, as :meth:`Rule.rewrite` says; ``None`` if it fits.

    Raises:
        TypeError: the arguments do not fit the task.
    """
    fields = loads(plan.signature)
    is_changed = False
    if isinstance(task, str):
        is_changed, fields["task"] = fields["task"] != task, task
    elif task is not KEPT:
        is_changed = renamed(fields, task)
    made = None if change is KEPT else made_anew(change, fields["args"], fields["kwargs"])
    if made is not None:
        is_changed, (fields["args"], fields["kwargs"]) = True, made
    if not is_changed:
        return None
    signature = app.signature(fields)
    return checked_plan(signature, plan.timing, plan.missed, plan.jitter, plan.tags)
