"""Answers, times and states in words, for the pages."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

from markupsafe import Markup

from ...core.store import Outcome, State
from ...core.tasks.scheduled_task import ScheduledTask
from ...operations.cli.common import REFUSED, soon, stamp
from ...operations.cli.output import Target, why_behind, why_gone
from .visit import Visit

_CHANGED = "task {} was changed since you loaded the page, or is in another state; nothing was done"


def time(moment: datetime | None) -> Markup | str:
    """Return a time in UTC, to which the script adds the viewer's own."""
    if moment is None:
        return "unknown"
    iso = moment.astimezone(timezone.utc).isoformat(timespec="milliseconds")
    text = stamp(moment.replace(microsecond=0), timezone.utc)
    return Markup('<time datetime="{}">{} UTC</time>').format(iso, text)


def answer(visit: Visit, done: str, outcome: Outcome, task_id: str) -> str:
    """Return the answer to a change of one task.

    Args:
        visit: The visit.
        done: The past form, as in "task a was cancelled".
        outcome: The outcome.
        task_id: The task's id.
    """
    if outcome:
        return f"task {task_id} was {done}"
    if outcome in (Outcome.HANDED_OVER, Outcome.NOT_FOUND):
        return why_gone(visit.delayq, timezone.utc, Target(task_id))
    if outcome is Outcome.BEHIND:
        return why_behind(visit.delayq, timezone.utc, Target(task_id))
    if outcome is Outcome.UNCHANGED:
        return _CHANGED.format(task_id)
    return REFUSED[outcome].format(task_id)


def state(task: ScheduledTask, now: datetime) -> str:
    """Return a task's state, and why it waits longer than its due time."""
    words = task.state.value.lower().replace("_", " ")
    if task.state is State.SCHEDULED and task.paused_by:
        words = f"{words}, {', '.join(task.paused_by)} paused"
    elif task.behind:
        words = f"{words}, behind {task.behind}"
    elif task.state is State.SCHEDULED and task.due <= now:
        words = "overdue"
    if task.next_try:
        words = f"{words}, next try {soon(task.next_try, now)}"
    return words


def arguments(visit: Visit, task: ScheduledTask) -> str:
    """Return the arguments as logs show them; empty if they are hidden."""
    if visit.hides or task.is_canvas:
        return ""
    texts: tuple[Any, ...] = (task.argsrepr, task.kwargsrepr)
    return " ".join(text for text in texts if text and text not in ("()", "{}"))
