"""The entries of celery-redbeat, as its version 2.4 keeps them in Redis; it need not be installed.

PREFIX:schedule   a sorted set: the keys of the entries
PREFIXname        a hash: `definition`, JSON, in which `__type__` says what an object is
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

from ...core.errors import StoreError, StoreUnavailable
from ...core.message.broker import store_endpoint
from ...core.servers.connection import Connection, PooledConnection, packed
from ...core.servers.endpoint import Server
from ...core.services import Services
from .importing import Entry, crontab_of

_STEP = "import"
_NAMES = "redbeat_redis_url", "redbeat_redis_use_ssl"


def place(services: Services) -> str:
    """Return the place of its entries, for a message."""
    return f"the set {_prefix(services)}:schedule in {_server(services).url}"


def entries(services: Services) -> Iterator[Entry]:
    """Yield its entries by key; those of which no rule can be made are refused.

    Raises:
        InvalidSetting: ``redbeat_redis_url`` names no single Redis.
        StoreError: the Redis cannot be read.
    """
    connection = PooledConnection(_server(services), services.settings.timeout)
    prefix = _prefix(services)
    try:
        keys = connection.execute(_STEP, packed(["ZRANGE", f"{prefix}:schedule", 0, -1]))
        for key in sorted(keys):
            name = key.decode(errors="replace").removeprefix(prefix)
            try:
                yield _entry(services, name, _definition(connection, key))
            except (TypeError, ValueError, LookupError, ArithmeticError, RecursionError) as error:
                yield Entry(name, refused=f"its definition cannot be read: {error}")
    finally:
        connection.close()


def _server(services: Services) -> Server:
    conf = services.app.conf
    url, tls = conf.first("redbeat_redis_url", "REDBEAT_REDIS_URL"), None
    if url is not None and url.startswith("rediss"):  # redbeat reads it of no other URL
        tls = conf.first(_NAMES[1], _NAMES[1].upper()) or conf.broker_use_ssl
    options = {"ssl": tls} if isinstance(tls, Mapping) else None
    return store_endpoint(url, options, services.broker, _NAMES, 0)


def _prefix(services: Services) -> str:
    conf = services.app.conf
    return conf.first("redbeat_key_prefix", "REDBEAT_KEY_PREFIX") or "redbeat:"


def _definition(connection: Connection, key: bytes) -> Any:
    try:
        text = connection.execute(_STEP, packed(["HGET", key, "definition"]))
    except StoreUnavailable:
        raise
    except StoreError as error:  # its key has another type
        raise ValueError(str(error)) from error
    if text is None:
        raise ValueError("it has none")
    return json.loads(text, object_hook=_time)


def _time(found: dict[str, Any]) -> Any:
    """Return the time that an object says, as it may be an argument."""
    if found.get("__type__") != "datetime":
        return found
    parts = {name: part for name, part in found.items() if name not in ("__type__", "timezone")}
    zone = found.get("timezone", "UTC")
    named = ZoneInfo(zone) if isinstance(zone, str) else timezone(timedelta(seconds=zone))
    return datetime(**parts, tzinfo=named)


def _entry(services: Services, name: str, found: Any) -> Entry:
    if not isinstance(found, dict):
        raise TypeError("it is no JSON object")
    task = found.get("task")
    entry = Entry(name, task if isinstance(task, str) else "")
    entry = replace(entry, is_enabled=bool(found.get("enabled", True)))
    if not isinstance(found.get("name"), str):
        return entry.but("it has no name")
    entry = _timed(replace(entry, name=found["name"]), found.get("schedule"))
    args, kwargs, options = (found.get(field) for field in ("args", "kwargs", "options"))
    return entry.calling(services.app, args or [], kwargs or {}, options or {})


def _timed(entry: Entry, schedule: Any) -> Entry:
    kind = schedule.get("__type__") if isinstance(schedule, dict) else None
    entry = replace(entry, kind=str(kind or ""))
    try:
        if kind == "interval":
            return replace(entry, schedule=timedelta(seconds=schedule["every"]))
        if kind == "crontab":
            return replace(entry, schedule=crontab_of(schedule))
    except Exception as error:  # Celery's parser has errors of its own
        return entry.but(f"its {kind} cannot be read: {error!r}")
    return entry.but(f"its schedule is {kind or 'none'}; expected interval or crontab")
