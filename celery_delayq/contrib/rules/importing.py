"""Rules from the entries of another scheduler: the action ``import`` of the command ``rules``.

    celery-redbeat, django-celery-beat --entries--> plan --steps--> carry_out --> rules

An import is a mirror, but of the entries of ``beat_schedule``: each rule becomes as its entry is,
also paused or not, so to import the same again changes nothing. A rule whose entry is gone is
named, and removed if one asks for that. If no rule can be made of an entry any more, its rule is
paused, and beat sends the entry. The entries stay as they are.

celery-redbeat has them in Redis, as of version 2.4; it need not be installed:

    PREFIX:schedule   a sorted set: the keys of the entries
    PREFIXname        a hash: `definition` and `meta`, JSON; `__type__` says what an object is

django-celery-beat has them as rows of its model ``PeriodicTask``, as of version 2.9.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone, tzinfo
from functools import partial
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import click
from celery.schedules import crontab
from celery.schedules import schedule as interval

from ...core.clock import EPOCH, from_ms, instant
from ...core.errors import InvalidOption, InvalidSetting, StoreError, StoreUnavailable
from ...core.message.broker import store_endpoint
from ...core.servers.connection import Connection, packed
from ...core.servers.endpoint import Server
from ...core.services import Services
from ...core.text import plain
from ...operations.cli.output import Column, Room, Screen, table
from .. import rule_store as store
from . import face
from .declared import BEAT, CLEANUP, with_header
from .every import app_of, set_rule
from .plan import Taken, Timing, checked_plan, plan_of, timing_of

NEW, CHANGED, SAME, SKIPPED, REFUSED = "new", "changed", "same", "skipped", "refused"
GONE, REMOVED = "gone", "removed"
# The order in which columns of a row that is too wide shrink: name, task, schedule, zone, becomes.
_GIVES = ((4, 24), (1, 16), (3, 8), (0, 16), (2, 16), (3, 0), (1, 9), (0, 9))
_STYLES = {NEW: "green", CHANGED: "yellow"}
_OF_CELERY = "it comes from beat_schedule or Celery; delayq_beat takes it over"
_OFF = "; it is disabled here, and delayq_beat does not see that: pause its rule"
_PAUSED = "; its rule is paused, and beat sends it"
_NO_ENTRY = "no entry has this name any more"
FIELDS = ("minute", "hour", "day_of_month", "month_of_year", "day_of_week")


@dataclass(frozen=True)
class Entry:
    """An entry of another scheduler.

    Attributes:
        name: Its name.
        task: The name of its task.
        kind: The kind of its schedule, as its scheduler calls it.
        signature: Its task, with arguments and options; ``None`` if it is refused.
        schedule: When it fires; ``None`` if no rule can have that.
        tz: The zone of the fields; ``None``: the app's.
        taken: When it was sent last, for a rule that goes on from there.
        is_enabled: Whether it fires.
        refused: Why no rule can be made of it; or empty.
    """

    name: str
    task: str = ""
    kind: str = ""
    signature: Any = None
    schedule: timedelta | crontab | interval | None = None
    tz: str | None = None
    taken: Taken | None = None
    is_enabled: bool = True
    refused: str = ""

    def but(self, refused: str) -> Entry:
        """Return it refused: for the first reason that was found."""
        return replace(self, refused=self.refused or refused)

    def calling(self, app: Any, args: Any, kwargs: Any, options: Any) -> Entry:
        """Return it with its signature, or refused."""
        entry = self.but(_wrong_call(self.task, args, kwargs, options))
        if entry.refused:
            return entry
        signature = app.signature(self.task, args, kwargs, options=with_header(options))
        return replace(self, signature=signature)

    def sent_at(self, services: Services, last_run: datetime | None, behind: timedelta) -> Entry:
        """Return it with the time at which it was sent last."""
        late = services.app.conf.beat_cron_starting_deadline
        deadline = None if late is None else timedelta(seconds=late)
        return replace(self, taken=Taken(last_run, behind, deadline))

    def timed(self, make: Callable[[], Any], tz: str | None = None) -> Entry:
        """Return it with the schedule that *make* returns, or refused."""
        try:
            return replace(self, schedule=make(), tz=tz)
        except Exception as error:  # Celery's parser has errors of its own
            return self.but(f"its {self.kind} cannot be read: {error!r}")

    def untimed(self) -> Entry:
        """Return it refused, as no rule has such a schedule."""
        return self.but(f"its schedule is {self.kind or 'none'}; expected interval or crontab")


def _wrong_call(task: str, args: Any, kwargs: Any, options: Any) -> str:
    if not task:
        return "it has no task"
    if not isinstance(args, list) or not isinstance(kwargs, dict):
        return "its arguments are not a JSON list and a JSON object"
    if not isinstance(options, dict) or not isinstance(options.get("headers") or {}, dict):
        return "its options or headers are no JSON object"
    expires = options.get("expires")
    if expires is not None and (not isinstance(expires, (int, float)) or expires is True):
        return "its expires is a fixed time; set seconds, which count from each run"
    if delays := sorted({"eta", "countdown"} & {*options}):
        return f"its runs have a delay of their own, {delays[0]}"
    return ""


def _crontab_of(fields: Mapping[str, Any]) -> crontab:
    """Return Celery's crontab of fields; one that is missing is ``*``.

    Raises:
        Exception: Celery cannot read a field.
    """
    return crontab(**{name: fields.get(name, "*") for name in FIELDS})


@dataclass(frozen=True)
class Step:
    """A step of an import: an entry, and its result.

    Attributes:
        entry: The entry; of ``gone`` and ``removed`` what is known of it from its rule.
        word: ``new``, ``changed``, ``same``, ``skipped``, ``refused``, ``gone`` or ``removed``.
        why: Why it is skipped or refused.
        timing: The times of its rule.
        pauses: Whether there is a rule of an entry that is refused, which is paused.
    """

    entry: Entry
    word: str
    why: str = ""
    timing: Timing | None = None
    pauses: bool = False


def import_rules(
    ctx: click.Context, services: Services, source: str, names: tuple[str, ...],
    *, removes: bool, dry_run: bool, as_json: bool,
) -> None:  # fmt: skip
    """Import the entries of a source, or those of some names.

    Exits with 1 if an entry is refused, or is gone and its rule stays.
    """
    found = SOURCES[source]
    # All before the first line: a reader that stops, such as head, must not stop the import.
    done = [
        step if dry_run else carry_out(services, source, step)
        for step in plan(services, source, found.entries(services), names)
    ]
    is_empty = not done and not names
    # Of an empty place, perhaps a wrong one, nothing is removed unless it is named.
    for step in [*_gone(services, source, {step.entry.name for step in done}, names)]:
        gone = replace(step, word=REMOVED) if removes and not is_empty else step
        done.append(gone if dry_run else carry_out(services, source, gone))
    _show(ctx, done, as_json=as_json)
    if is_empty:
        stays = "; no rule is removed" if removes and done else ""
        ctx.obj.error(plain(f"{source} has no entries: {found.place(services)} is empty{stays}"))
    missing = {*names} - {step.entry.name for step in done}
    for name in sorted(missing):
        ctx.obj.error(plain(f"{source} has no entry {name}"))
    if missing or {REFUSED, GONE} & {step.word for step in done}:
        ctx.exit(1)


def plan(
    services: Services, source: str, entries: Iterable[Entry], names: Sequence[str] = ()
) -> Iterator[Step]:
    """Yield what would become of entries, or of those of some names; it writes nothing.

    Raises:
        StoreError: the store or the scheduler's Redis cannot be read.
    """
    seen = set[str]()
    for entry in entries:
        if names and entry.name not in names:
            continue
        if entry.name in seen:
            yield Step(entry, REFUSED, entry.refused or "another entry has this name")
        else:
            yield _or_refused(services, source, entry, partial(_plan, services, source, entry))
        seen.add(entry.name)


def _gone(services: Services, source: str, seen: set[str], names: Sequence[str]) -> Iterator[Step]:
    """Yield the rules of a source, or those of some names, that have no entry."""
    found = {rule.name: rule for rule in store.each(services.entries) if not rule.is_removed}
    for name in sorted({*found} - seen):
        rule = found[name]
        is_ours = rule.source == source and rule.row.get("app") == app_of(services)
        if not is_ours or (names and name not in names):
            continue
        entry, timing = Entry(name, is_enabled=not rule.is_paused), None
        try:
            made = plan_of(rule)
            task = made.signature_of(services.app).task
            entry, timing = replace(entry, task=task), made.timing
        except ValueError:  # a later release wrote it
            pass
        yield Step(entry, GONE, _NO_ENTRY, timing)


def carry_out(services: Services, source: str, step: Step) -> Step:
    """Do what a step says; return what became of it."""
    if step.word in (NEW, CHANGED):
        make = partial(_carry_out, services, source, step)
        step = _or_refused(services, source, step.entry, make)
    if step.pauses:
        face.change(services, step.entry.name, "pause", given=BEAT)
    elif step.word == REMOVED:
        face.change(services, step.entry.name, "remove")
    return step


def _or_refused(services: Services, source: str, entry: Entry, make: Callable[[], Step]) -> Step:
    """Return the step that *make* returns; its error refuses the entry, and no other one."""
    try:
        if not entry.refused:
            return make()
        why = entry.refused
    except StoreError:
        raise
    except Exception as error:  # Celery's schedules may raise anything
        why = str(error) or type(error).__name__
    pauses = _is_nameable(entry) and _is_of(services, source, entry.name)
    return Step(entry, REFUSED, why + _PAUSED * pauses, pauses=pauses)


def _is_nameable(entry: Entry) -> bool:
    return 1 <= len(entry.name.encode(errors="replace")) <= face.LONGEST_NAME


def _is_of(services: Services, source: str, name: str) -> bool:
    """Whether there is a rule of this name and source."""
    try:
        found = store.find(services.entries, name)
    except UnicodeError:
        return False
    return found is not None and not found.is_removed and found.source == source


def _plan(services: Services, source: str, entry: Entry) -> Step:
    if not _is_nameable(entry):
        raise ValueError(f"its name is no text of 1 to {face.LONGEST_NAME} bytes")
    if entry.name in {*(services.app.conf.beat_schedule or ()), CLEANUP}:
        return Step(entry, SKIPPED, _OF_CELERY + _OFF * (not entry.is_enabled))
    rule, before = face.named(services, entry.name), store.find(services.entries, entry.name)
    # A rule that is set in code, or by another import, is not this import's to change.
    if rule is not None and rule.source != source:
        raise InvalidOption("name", entry.name, "a name that no rule of another source has")
    zone = str(services.timezone)
    timing = timing_of(entry.schedule, tz=entry.tz, default_zone=zone)
    made = checked_plan(entry.signature, timing, "one", 0, [])
    if rule is None or before is None or before.digest != made.digest:
        return Step(entry, CHANGED if rule else NEW, timing=timing)
    is_same = rule.is_paused is not entry.is_enabled and not before.is_beats
    return Step(entry, SAME if is_same else CHANGED, timing=timing)


def _carry_out(services: Services, source: str, step: Step) -> Step:
    entry = step.entry
    before = face.named(services, entry.name)
    if before is not None and not entry.is_enabled:
        before.pause()  # before it has another schedule, or a run of that might leave
    rule = set_rule(
        services,
        entry.name,
        entry.signature,
        entry.schedule,
        tz=entry.tz,
        source=source,
        is_paused=not entry.is_enabled,
        taken=entry.taken,
    )
    if entry.is_enabled:
        rule.resume()
    return step


def _show(ctx: click.Context, steps: Sequence[Step], *, as_json: bool) -> None:
    if as_json:
        for step in steps:
            ctx.obj.echo(json.dumps(_facts(step)))
        return
    columns = [Column("NAME"), Column("TASK"), Column("SCHEDULE"), Column("ZONE")]
    columns.append(Column("BECOMES", _STYLES))
    screen = Screen(ctx)
    room = None if screen.width is None else Room(screen.width, _GIVES)
    screen.show(table(columns, (_row(step) for step in steps), room))


def _row(step: Step) -> tuple[str, ...]:
    entry, timing = step.entry, step.timing
    schedule, zone = (timing.text, timing.zone) if timing else (entry.kind, entry.tz or "")
    becomes = f"{step.word}: {step.why}" if step.why else step.word
    if timing and not step.why and not entry.is_enabled:
        becomes += ", paused"
    return tuple(map(plain, (entry.name, entry.task, schedule, zone, becomes)))


def _facts(step: Step) -> dict[str, Any]:
    entry, timing = step.entry, step.timing
    return {
        "name": entry.name,
        "task": entry.task,
        "schedule": timing.text if timing else None,
        "tz": timing.zone if timing else entry.tz,
        "enabled": entry.is_enabled,
        "becomes": step.word,
        "why": step.why or None,
        "pauses_rule": step.pauses,
    }


# celery-redbeat.

_STEP = "import"
_URL, _TLS, _OPTIONS = "redbeat_redis_url", "redbeat_redis_use_ssl", "redbeat_redis_options"
# Options that say which Redis, or who asks it.
_WHERE = {"cluster", "sentinels", "service_name", "sentinel_kwargs", "startup_nodes", "db"}
_WHERE |= {"username", "password", "credential_provider"}
_ONE_URL = f"a {_URL} that names the master, and has the database and the login"
_KEYS = {"name", "task", "args", "kwargs", "options", "schedule", "enabled"}
_BEHIND = timedelta(seconds=10)  # it stores each run before it sends it; a beat may be this late


def _redbeat_place(services: Services) -> str:
    return f"the set {_prefix(services)}:schedule in {_server(services).url}"


def _redbeat_entries(services: Services) -> Iterator[Entry]:
    """Yield its entries by key; those of which no rule can be made are refused.

    Raises:
        InvalidSetting: ``redbeat_redis_url`` names no single Redis, or the options do.
        StoreError: the Redis cannot be read.
    """
    connection = Connection(_server(services), services.settings.timeout)
    prefix = _prefix(services)
    try:
        keys = connection.execute(_STEP, packed(["ZRANGE", f"{prefix}:schedule", 0, -1]))
        for key in sorted(keys):
            name = key.decode(errors="replace").removeprefix(prefix)
            try:
                yield _redbeat_entry(services, name, *_stored(connection, key))
            except (TypeError, ValueError, LookupError, ArithmeticError, RecursionError) as error:
                yield Entry(name, refused=f"its definition cannot be read: {error}")
    finally:
        connection.close()


def _server(services: Services) -> Server:
    conf = services.app.conf
    options = conf.first(_OPTIONS, _OPTIONS.upper()) or {}
    if given := sorted(_WHERE & {*options}):
        raise InvalidSetting(_OPTIONS, given, _ONE_URL)
    url, tls = conf.first(_URL, _URL.upper()), None
    if url is not None and url.startswith("rediss"):  # redbeat reads it of no other URL
        tls = conf.first(_TLS, _TLS.upper()) or conf.broker_use_ssl
    ssl = {"ssl": tls} if isinstance(tls, Mapping) else None
    return store_endpoint(url, ssl, services.broker, (_URL, _TLS), 0)


def _prefix(services: Services) -> str:
    conf = services.app.conf
    return conf.first("redbeat_key_prefix", "REDBEAT_KEY_PREFIX") or "redbeat:"


def _stored(connection: Connection, key: bytes) -> tuple[Any, Any]:
    """Return the definition and the meta of an entry."""
    try:
        texts = connection.execute(_STEP, packed(["HMGET", key, "definition", "meta"]))
    except StoreUnavailable:
        raise
    except StoreError as error:  # its key has another type
        raise ValueError(str(error)) from error
    if texts[0] is None:
        raise ValueError("it has none")
    found, meta = (json.loads(text or "{}", object_hook=_time) for text in texts)
    return found, meta


def _time(found: dict[str, Any]) -> Any:
    """Return the time that an object says, as it may be an argument."""
    if found.get("__type__") != "datetime":
        return found
    parts = {name: part for name, part in found.items() if name not in ("__type__", "timezone")}
    zone = found.get("timezone", "UTC")
    named = ZoneInfo(zone) if isinstance(zone, str) else timezone(timedelta(seconds=zone))
    return datetime(**parts, tzinfo=named)


def _redbeat_entry(services: Services, name: str, found: Any, meta: Any) -> Entry:
    if not isinstance(found, dict) or not isinstance(meta, dict):
        raise TypeError("it is no JSON object")
    task = found.get("task")
    entry = Entry(name, task if isinstance(task, str) else "")
    entry = replace(entry, is_enabled=bool(found.get("enabled", True)))
    if not isinstance(found.get("name"), str):
        return entry.but("it has no name")
    entry = _redbeat_timed(replace(entry, name=found["name"]), found.get("schedule"))
    if unknown := sorted({*found} - _KEYS):
        entry = entry.but(f"no rule has what it says as {unknown[0]}")
    last = meta.get("last_run_at") or EPOCH  # one that never ran is due at once
    if not isinstance(last, datetime):
        raise TypeError(f"its last run is {last!r}")
    entry = entry.sent_at(services, last.astimezone(timezone.utc), _BEHIND)
    args, kwargs, options = (found.get(field) for field in ("args", "kwargs", "options"))
    return entry.calling(services.app, args or [], kwargs or {}, options or {})


def _redbeat_timed(entry: Entry, schedule: Any) -> Entry:
    kind = schedule.get("__type__") if isinstance(schedule, dict) else None
    entry = replace(entry, kind=str(kind or ""))
    known = {"interval": {"every", "relative"}, "crontab": {*FIELDS}}.get(entry.kind)
    if known is None:
        return entry.untimed()
    if unknown := sorted({*schedule} - known - {"__type__"}):
        return entry.but(f"its {kind} has {unknown[0]}, which no rule has")
    if kind == "crontab":
        return entry.timed(lambda: _crontab_of(schedule))
    if schedule.get("relative"):
        return entry.timed(lambda: interval(timedelta(seconds=schedule["every"]), relative=True))
    return entry.timed(lambda: timedelta(seconds=schedule["every"]))


# django-celery-beat.

_NAME, _APP = "django-celery-beat", "django_celery_beat"
_EXPECTED = f"a project whose Django has {_APP} in its INSTALLED_APPS, and its tables"
_KINDS = ("crontab", "interval", "solar", "clocked")
# It stores last runs each three minutes, between two looks, which are five seconds apart.
_UNSYNCED = timedelta(seconds=200)


def _django_place(services: Services) -> str:  # noqa: ARG001 - as of the other
    return "the table of PeriodicTask"


def _django_entries(services: Services) -> Iterator[Entry]:
    """Yield its entries by name; those of which no rule can be made are refused.

    Raises:
        InvalidOption: Django is not configured, or does not have them.
    """
    now = from_ms(services.entries.counts().now_ms)
    for row, is_zoned in _rows():
        yield _django_entry(services, row, now, is_zoned=is_zoned)


def _rows() -> Iterator[tuple[Any, bool]]:
    """Yield each row, with whether its crontab has a zone of its own."""
    try:
        import django
    except ModuleNotFoundError as missing:
        raise InvalidOption("--from", _NAME, _EXPECTED) from missing
    from django.apps import apps
    from django.conf import settings
    from django.core.exceptions import ImproperlyConfigured
    from django.db import DatabaseError

    try:
        if not apps.ready:
            django.setup()
        is_zoned = getattr(settings, "DJANGO_CELERY_BEAT_TZ_AWARE", True)
        model = apps.get_model(_APP, "PeriodicTask")
        for row in model._default_manager.select_related(*_KINDS).order_by("name"):
            yield row, is_zoned
    except (ImproperlyConfigured, LookupError, DatabaseError) as why:
        raise InvalidOption("--from", _NAME, f"{_EXPECTED} ({why})") from why


def _django_entry(services: Services, row: Any, now: datetime, *, is_zoned: bool) -> Entry:
    kind = next((kind for kind in _KINDS if getattr(row, kind) is not None), "")
    refused = _refused(row, now, services.timezone)
    entry = Entry(row.name, row.task, kind, is_enabled=row.enabled, refused=refused)
    entry = entry.sent_at(services, _last_run(row, now, services.timezone), _UNSYNCED)
    entry = entry if refused else _django_timed(entry, row, is_zoned=is_zoned)
    try:
        args, kwargs = json.loads(row.args or "[]"), json.loads(row.kwargs or "{}")
        headers = json.loads(row.headers or "{}")
    except ValueError as error:
        return entry.but(f"its arguments or headers are no JSON: {error}")
    if not isinstance(headers, dict):
        return entry.but("its headers are no JSON object")
    return entry.calling(services.app, args, kwargs, _options(row, headers))


def _options(row: Any, headers: dict[str, Any]) -> dict[str, Any]:
    """Return the options of its calls, as django-celery-beat makes them."""
    options = {
        "queue": row.queue,
        "exchange": row.exchange,
        "routing_key": row.routing_key,
        "priority": row.priority,
        "expires": row.expire_seconds or None,
        "headers": {**headers, "periodic_task_name": row.name},
    }
    return {name: value for name, value in options.items() if value is not None}


def _refused(row: Any, now: datetime, zone: tzinfo) -> str:
    if row.one_off:
        return "it runs once; schedule its task"
    if row.expires is not None:
        return "it ends at a fixed time; remove its rule then"
    begin = _aware(row.start_time, zone)
    if begin is not None and begin > now:
        return f"it begins at {begin.isoformat()}; import it then"
    return ""


def _last_run(row: Any, now: datetime, zone: tzinfo) -> datetime | None:
    """Return when it was sent last, as django-celery-beat takes it."""
    if row.last_run_at is not None:
        return _aware(row.last_run_at, timezone.utc)
    changed = _aware(row.date_changed, zone)
    is_new = changed is None or changed > now - _UNSYNCED
    return EPOCH if row.start_time is not None and not is_new else changed


def _aware(moment: datetime | None, zone: tzinfo) -> datetime | None:
    """Return a time, which is one of the zone without USE_TZ."""
    if moment is None:
        return None
    return instant(moment, zone) if moment.tzinfo is None else moment


def _django_timed(entry: Entry, row: Any, *, is_zoned: bool) -> Entry:
    if entry.kind == "interval":
        return entry.timed(lambda: timedelta(**{row.interval.period: row.interval.every}))
    if entry.kind == "crontab":
        fields = {name: getattr(row.crontab, name) for name in FIELDS}
        zone = str(row.crontab.timezone) if is_zoned else None
        return entry.timed(lambda: _crontab_of(fields), zone)
    return entry.untimed()


class Foreign(NamedTuple):
    """Another scheduler.

    Attributes:
        entries: Yields its entries.
        place: Returns the place of its entries, for a message.
    """

    entries: Callable[[Services], Iterator[Entry]]
    place: Callable[[Services], str]


SOURCES = {
    "redbeat": Foreign(_redbeat_entries, _redbeat_place),
    _NAME: Foreign(_django_entries, _django_place),
}
