"""The facts about a task: ``ScheduledTask.facts``, which ``--json`` prints, and ``show``."""

from __future__ import annotations

import json
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

from ..clock import EPOCH

Waiting = Any  # a ScheduledTask, whose module imports this one


def facts_of(task: Waiting) -> dict[str, Any]:
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
        "behind": task.behind,
        "behind_until": task.behind_until,
        "tags": list(task.tags),
        "priority": task.priority,
        "put_offs": task.put_offs,
        "reason": task.reason,
        "error": "" if task.reason else task.error,
        "attempts": task.attempts,
        "next_try": task.next_try,
        "dead_since": task.dead_since,
        "paused_by": list(task.paused_by),
        "cursor": task.cursor,
    }
    return {**facts, **{name: value for name, value in more.items() if value}}


def json_facts_of(task: Waiting) -> dict[str, Any]:
    """Return the same as JSON values; see ``ScheduledTask.facts``."""
    facts = facts_of(task)
    for name, value in zip(("args", "kwargs"), task.shown_arguments(), strict=True):
        text, facts[name] = facts[name], _in_json(value)
        if facts[name] is None:
            facts[f"{name}repr"] = text
    values: dict[str, Any] = json.loads(line_of_json(facts))
    return values


def line_of_json(facts: Any) -> str:
    """Return plain values as a line of JSON; times as text, with their offset."""
    return json.dumps(facts, default=_plain, allow_nan=False)


def _in_json(value: Any) -> Any:
    """Return *value* as JSON values; ``None`` if it has none."""
    try:
        return json.loads(line_of_json(value))
    except (TypeError, ValueError, RecursionError):
        return None


def _plain(value: Any) -> str:
    """Return the text of a type that JSON lacks, but Celery's own JSON supports."""
    if isinstance(value, (date, datetime, time)):
        return value.isoformat()
    if isinstance(value, (Decimal, UUID)):
        return str(value)
    raise TypeError(value)
