"""The facts about a task that ``show`` and ``--json`` print."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

from ..clock import EPOCH
from ..operations.scheduled_task import ScheduledTask


def facts_of(task: ScheduledTask) -> dict[str, Any]:
    """Return the facts about a task, with arguments as text; rare facts only if it has them."""
    # The times of an unreadable task are unknown.
    is_read = task.created != EPOCH
    facts = {
        "id": task.id,
        "task": task.task,
        "args": task.argsrepr,
        "kwargs": task.kwargsrepr,
        "queue": task.queue,
        "due": task.due if is_read else None,
        "created": task.created if is_read else None,
        "changed": task.changed if is_read else None,
        "revision": task.revision,
        "host": task.host,
        "state": task.state.value,
    }
    more = {
        "key": task.key,
        "tags": list(task.tags),
        "reason": task.reason,
        "error": "" if task.reason else task.error,
        "attempts": task.attempts,
        "next_try": task.next_try,
        "dead_since": task.dead_since,
        "paused_by": list(task.paused_by),
        "cursor": task.cursor,
    }
    return {**facts, **{name: value for name, value in more.items() if value}}


def json_of(task: ScheduledTask) -> str:
    """Return a task as a line of JSON.

    ``args`` is an array and ``kwargs`` an object. If they are hidden or cannot be JSON, they are
    ``null``, and ``argsrepr`` and ``kwargsrepr`` have the texts that logs show.
    """
    facts = facts_of(task)
    shown = task.shown_arguments()
    facts["args"], facts["kwargs"] = shown
    if None not in shown:
        try:
            return _dumped(facts)
        except (TypeError, ValueError, RecursionError):
            pass
    for name, text in (("args", task.argsrepr), ("kwargs", task.kwargsrepr)):
        if not _can_be_json(facts[name]):
            facts |= {name: None, f"{name}repr": text}
    return _dumped(facts)


def line_of_json(facts: Mapping[str, Any]) -> str:
    """Return plain values as a line of JSON; times as text, with their offset."""
    return _dumped(facts)


def _can_be_json(value: Any) -> bool:
    try:
        _dumped(value)
    except (TypeError, ValueError, RecursionError):
        return False
    return value is not None


def _dumped(value: Any) -> str:
    return json.dumps(value, default=_plain, allow_nan=False)


def _plain(value: Any) -> str:
    """Return the text of a type that JSON lacks, but Celery's own JSON supports."""
    if isinstance(value, (date, datetime, time)):
        return value.isoformat()
    if isinstance(value, (Decimal, UUID)):
        return str(value)
    raise TypeError(value)
