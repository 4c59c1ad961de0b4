"""Logs what a hand-over did not deliver: dead tasks, refused tasks, tasks that were too late."""

from __future__ import annotations

from collections.abc import Iterable

from ..hooks import Hooks
from ..store.values import Seen
from ..text import logger_of

logger = logger_of(__name__)

DIRECT, RELAY = "direct", "relay"  # the ways out, by the names that hooks get


def tell(hooks: Hooks, dead: Iterable[tuple[str, str]]) -> None:
    """Log each (task id, reason), and call the hooks."""
    for task_id, reason in dead:
        logger.error("task %s is dead: %s; runbook: DelayqDead", task_id, reason)
        hooks.dead(task_id, reason)


def tell_skipped(hooks: Hooks, skipped: Iterable[tuple[str, str]]) -> None:
    """Log each (task id, why) that was skipped as too late, and call the hooks."""
    for task_id, why in skipped:
        logger.info("task %s: %s", task_id, why)
        hooks.skipped(task_id, why)


def report(hooks: Hooks, seen: Seen) -> None:
    """Report the results of a direct hand-over."""
    if seen.ids:
        hooks.handed_over(seen.ids)
    if seen.late:
        hooks.left(DIRECT, seen.late)
    for reason, count in seen.refused:
        hooks.refused(DIRECT, count)
        what = "1 task was refused by its list and keeps waiting"
        if count > 1:
            what = f"{count} tasks were refused by their list and keep waiting"
        logger.warning("%s: %s", what, reason)
    tell(hooks, seen.dead)
    tell_skipped(hooks, seen.skipped)
