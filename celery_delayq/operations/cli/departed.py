"""Sentences about a task that is not in the store, or waits behind such a one."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime, tzinfo
from typing import NamedTuple

from ...core.clock import from_ms
from ...core.errors import DelayQError
from ...core.services import HasServices
from ...core.store import Departure
from ...core.tasks.reading import counts, departure, get
from ...core.tasks.scheduled_task import ScheduledTask
from .zones import relative

_LEFT = {
    "handed_over": "task {} has been handed over to its queue already",
    "skipped": "task {} was skipped, as it was overdue by more than its grace period",
    "cancelled": "task {} has been cancelled already",
    "uncertain": "task {} has been cancelled already, but an earlier attempt may have delivered it",
}
_NOT_HERE = "task {} is not scheduled in {} (prefix {})"
HINT = (
    "; a task that was sent with an eta may be held by a worker: celery -A proj inspect scheduled "
    "lists it, celery -A proj delayq cancel --revoke drops it"
)


class Target(NamedTuple):
    """A task that was named by its id, or by its unique key."""

    task_id: str | None = None
    key: str | None = None

    def __str__(self) -> str:
        return self.task_id or self.key or ""


def behind_which(task: ScheduledTask, now: datetime, zone: tzinfo) -> str:
    """Return the words for a task that waits behind another one."""
    sentence = f"waits behind task {task.behind}, which holds its key"
    if task.behind_until is None:
        return sentence
    return f"{sentence} until {relative(task.behind_until, now, zone)} at the latest"


def why_behind(delayq: HasServices, zone: tzinfo, who: Target) -> str:
    """Return a sentence about a task that is due now, but waits behind another one."""
    task, now = get(delayq, who.task_id, key=who.key), from_ms(counts(delayq).now_ms)
    if task is None or not task.behind:  # meanwhile
        return f"task {who} is due now; it waited behind a task that held its key"
    return f"task {who} is due now, but {behind_which(task, now, zone)}"


def why_gone(delayq: HasServices, zone: tzinfo, who: Target, hint: str = "") -> str:
    """Return a sentence about a task that is not in the store.

    Args:
        delayq: The app's ``DelayQ``.
        zone: The time zone of times in the sentence.
        who: The task.
        hint: The text to append if nothing is known about the task.
    """
    left: Departure | None = None
    with suppress(DelayQError):
        left = departure(delayq.services, who.task_id, key=who.key)
    if left is None:
        services = delayq.services
        return _NOT_HERE.format(who, services.endpoint.url, services.settings.prefix) + hint
    when = from_ms(left.when_ms)
    return f"{_LEFT[left.how].format(who)}, {relative(when, from_ms(left.now_ms), zone)}"
