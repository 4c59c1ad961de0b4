"""Dump a store: all that waits, is in flight or dead, and what is paused, line by line.

It changes nothing, and holds Redis for some 3 ms at a time. What comes after it began is left out;
what leaves while it is read may be in it or not. So a store that moves is paused before.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from datetime import timezone
from importlib import metadata
from typing import Any

from .. import clock
from ..care import dumps
from ..care.dumps import Kept
from ..errors import StoreError
from ..message.dumped import described
from ..services import Services
from ..store.keys import SCHEMA
from ..store.listing import store_of
from . import lines
from .lines import DUMP, END, FORMAT, LONGEST_TEXT, PAUSE, TASK, UNREADABLE
from .pausing import is_all_paused

_PACKAGE = "celery-delayq"
LOOK_AGAIN = 0.2  # seconds between two looks at what is in flight


def dump(services: Services) -> Iterator[dict[str, Any]]:
    """The lines of a dump, read while one iterates; see :meth:`DelayQ.dump`."""
    yield _first(services)
    for pause in services.entries.pauses():
        told = {
            "kind": PAUSE,
            "queue": pause.queue,
            "task": pause.task,
            "late": pause.late,
            "since_ms": clock.to_ms(pause.since, timezone.utc),
            "resumed": pause.resumed,
        }
        yield _telling(told)
    counts = {TASK: 0, UNREADABLE: 0}
    lent: set[str] = set()  # keys of what is in flight; of two, the first that comes back has it
    queues = list(services.app.amqp.queues)
    for kept in dumps.dump(services.entries):
        line = _line_of(services, kept, queues)
        counts[line["kind"]] += 1
        if line["state"] == "in_flight" and line.get("holds_key"):
            if line["key"] in lent:
                del line["holds_key"]
            lent.add(line["key"])
        yield line
    yield {"kind": END, "tasks": counts[TASK], "unreadable": counts[UNREADABLE]}


def wait_for_leases(services: Services, seconds: float) -> int:
    """Wait until nothing is being published; how many still are when the time is over."""
    until = clock.monotonic() + seconds
    while True:
        count = services.entries.counts().in_flight
        if not count or clock.monotonic() >= until:
            return count
        clock.sleep(LOOK_AGAIN)


def _first(services: Services) -> dict[str, Any]:
    entries, settings = services.entries, services.settings
    return {
        "kind": DUMP,
        "format": FORMAT,
        "made_by": f"{_PACKAGE} {_version()}",
        "schema": SCHEMA,
        "store": store_of(entries.links[0]),
        "prefix": settings.prefix,
        "shards": settings.shards,
        "time_ms": dumps.now_ms(entries),
        "paused": is_all_paused(services),
        "in_flight": entries.counts().in_flight,
        "owed": dumps.owed(entries),
    }


def _line_of(services: Services, kept: Kept, queues: list[str]) -> dict[str, Any]:
    if not kept.is_readable:
        return _raw(kept, kept.error)
    try:
        told = described(kept, services.broker, queues)
        due_ms, created_us = kept.record.due_ms, kept.record.created_us
    except StoreError:
        raise
    except Exception as error:  # what is not JSON, or has no text, fails in many ways
        return _raw(kept, str(error) or type(error).__name__)
    line = {
        "kind": TASK,
        "id": kept.task_id,
        "state": kept.place,
        "due_ms": due_ms,
        "scheduled_us": created_us,
        "holds_key": kept.is_named,
        "attempts": kept.attempts or None,
        "refusals": kept.refusals or None,
        "may_be_delivered": kept.uncertain,
        "next_try_ms": kept.when_ms if kept.place == "refused" else None,
        "dead_since_ms": kept.when_ms if kept.place == "dead" else None,
        "error": kept.error[:LONGEST_TEXT] or None,
    }
    whole = _telling(line) | told
    # A line that is refused would end a load: what no load could take is dumped as it stands.
    fault = lines.fault_of(whole)
    return whole if fault is None else _raw(kept, fault)


def _telling(line: dict[str, Any]) -> dict[str, Any]:
    """A line without the fields that say nothing."""
    return {name: one for name, one in line.items() if one is not None and one is not False}


def _raw(kept: Kept, why: str) -> dict[str, Any]:
    """What cannot be read, as it is, for whoever can."""
    task_id = kept.task_id.encode(errors="surrogateescape").decode(errors="backslashreplace")
    return {
        "kind": UNREADABLE,
        "id": task_id[: lines.LONGEST_ID],
        "state": kept.place,
        "reason": why.encode(errors="backslashreplace").decode()[:LONGEST_TEXT],
        "record": base64.b64encode(kept.record.text).decode(),
        "template": base64.b64encode(kept.template or b"").decode(),
    }


def _version() -> str:
    try:
        return metadata.version(_PACKAGE)
    except metadata.PackageNotFoundError:  # it was not installed, but copied
        return "of no known version"
