"""The entries of django-celery-beat, through its model ``PeriodicTask``, as version 2.9 has it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta, tzinfo
from typing import Any

from ...core.clock import from_ms
from ...core.errors import InvalidOption
from ...core.services import Services
from ...core.zones import instant
from .importing import FIELDS, Entry, crontab_of

_NAME, _APP = "django-celery-beat", "django_celery_beat"
_EXPECTED = f"a project whose Django has {_APP} in its INSTALLED_APPS, and its tables"
_KINDS = ("crontab", "interval", "solar", "clocked")


def place(services: Services) -> str:  # noqa: ARG001 - as of the others
    """Return the place of its entries, for a message."""
    return "the table of PeriodicTask"


def entries(services: Services) -> Iterator[Entry]:
    """Yield its entries by name; those of which no rule can be made are refused.

    Raises:
        InvalidOption: Django is not configured, or does not have them.
    """
    now = from_ms(services.entries.counts().now_ms)
    for row, is_zoned in _rows():
        yield _entry(services, row, now, is_zoned=is_zoned)


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


def _entry(services: Services, row: Any, now: datetime, *, is_zoned: bool) -> Entry:
    kind = next((kind for kind in _KINDS if getattr(row, kind) is not None), "")
    refused = _refused(row, now, services.timezone)
    entry = Entry(row.name, row.task, kind, is_enabled=row.enabled, refused=refused)
    entry = entry if refused else _timed(entry, row, is_zoned=is_zoned)
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
    begin = row.start_time
    if begin is not None and begin.tzinfo is None:  # without USE_TZ
        begin = instant(begin, zone)
    if begin is not None and begin > now:
        return f"it begins at {begin.isoformat()}; import it then"
    return ""


def _timed(entry: Entry, row: Any, *, is_zoned: bool) -> Entry:
    try:
        if entry.kind == "interval":
            every = timedelta(**{row.interval.period: row.interval.every})
            return replace(entry, schedule=every)
        if entry.kind == "crontab":
            fields = {name: getattr(row.crontab, name) for name in FIELDS}
            zone = str(row.crontab.timezone) if is_zoned else None
            return replace(entry, schedule=crontab_of(fields), tz=zone)
    except Exception as error:  # Celery's parser has errors of its own
        return entry.but(f"its {entry.kind} cannot be read: {error!r}")
    return entry.but(f"its schedule is {entry.kind or 'none'}; expected interval or crontab")
