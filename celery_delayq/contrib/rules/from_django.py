"""The entries of django-celery-beat, through its model ``PeriodicTask``, as version 2.9 has it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

from ...core.clock import from_ms
from ...core.errors import InvalidOption
from ...core.services import Services
from .importing import FIELDS, Entry, crontab_of

_APP = "django_celery_beat"
_EXPECTED = f"a project whose Django has {_APP} in its INSTALLED_APPS, and its tables"
_KINDS = ("crontab", "interval", "solar", "clocked")


def place(services: Services) -> str:  # noqa: ARG001 - as of the others
    """Return where its entries are, for people."""
    return "the table of PeriodicTask"


def entries(services: Services) -> Iterator[Entry]:
    """Yield its entries by name; those of which no rule can be made are refused.

    Raises:
        InvalidOption: Django is not configured, or does not have them.
    """
    now = from_ms(services.entries.counts().now_ms)
    for row in _rows():
        yield _entry(services, row, now)


def _rows() -> Iterator[Any]:
    try:
        import django
        from django.apps import apps
        from django.core.exceptions import ImproperlyConfigured
        from django.db import DatabaseError
    except ModuleNotFoundError as missing:
        raise InvalidOption("--from", "django-celery-beat", _EXPECTED) from missing
    try:
        if not apps.ready:
            django.setup()
        model = apps.get_model(_APP, "PeriodicTask")
        yield from model._default_manager.select_related(*_KINDS).order_by("name")
    except (ImproperlyConfigured, LookupError, DatabaseError) as why:
        raise InvalidOption("--from", "django-celery-beat", f"{_EXPECTED} ({why})") from why


def _entry(services: Services, row: Any, now: datetime) -> Entry:
    kind = next((kind for kind in _KINDS if getattr(row, kind) is not None), "")
    entry = Entry(row.name, row.task, kind, is_enabled=row.enabled, refused=_refused(row, now))
    entry = entry if entry.refused else _timed(entry, row)
    try:
        args, kwargs = json.loads(row.args or "[]"), json.loads(row.kwargs or "{}")
        headers = json.loads(row.headers or "{}")
    except ValueError as error:
        why = f"its arguments or headers are no JSON: {error}"
        return replace(entry, refused=entry.refused or why)
    if not isinstance(headers, dict):
        return replace(entry, refused=entry.refused or "its headers are no JSON object")
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


def _refused(row: Any, now: datetime) -> str:
    if row.one_off:
        return "it runs once; schedule its task"
    if row.expires is not None:
        return "it ends at a fixed time; remove its rule then"
    if row.start_time is not None and _utc(row.start_time) > now:
        return f"it begins at {_utc(row.start_time).isoformat()}; import it then"
    return ""


def _utc(moment: datetime) -> datetime:
    from django.utils.timezone import is_naive, make_aware

    return (make_aware(moment) if is_naive(moment) else moment).astimezone(timezone.utc)


def _timed(entry: Entry, row: Any) -> Entry:
    from django.conf import settings

    try:
        if entry.kind == "interval":
            every = timedelta(**{row.interval.period: row.interval.every})
            return replace(entry, schedule=every)
        if entry.kind == "crontab":
            is_aware = getattr(settings, "DJANGO_CELERY_BEAT_TZ_AWARE", True)
            zone = str(row.crontab.timezone) if is_aware else None
            fields = {name: getattr(row.crontab, name) for name in FIELDS}
            return replace(entry, schedule=crontab_of(fields), tz=zone)
    except Exception as error:  # Celery's parser has errors of its own
        return replace(entry, refused=f"its {entry.kind} cannot be read: {error!r}")
    kind = entry.kind or "none"
    return replace(entry, refused=f"its schedule is {kind}; expected interval or crontab")
