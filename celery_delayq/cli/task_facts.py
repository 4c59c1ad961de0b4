"""A task as ``show`` and ``--json`` tell of it."""

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
    """What is told of a task, with its arguments as text; what few have, where it has that."""
    # Of what cannot be read, no time is known.
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
    """A task as a line of JSON.

    ``args`` is an array and ``kwargs`` an object. Where they may not be shown, or cannot be JSON,
    they are ``null``, and ``argsrepr`` and ``kwargsrepr`` say what logs show.
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
    """Plain values as a line of JSON; times as text, with their offset."""
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
    """What is no JSON but has one text; Celery's own JSON keeps these as what they are."""
    if isinstance(value, (date, datetime, time)):
        return value.isoformat()
    if isinstance(value, (Decimal, UUID)):
        return str(value)
    raise TypeError(value)
