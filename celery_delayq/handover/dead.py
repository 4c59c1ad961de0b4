"""Saying that tasks became dead letters."""

from __future__ import annotations

from collections.abc import Iterable

from ..logs import logger_of
from ..services import Hooks

logger = logger_of(__name__)


def tell(hooks: Hooks, dead: Iterable[tuple[str, str]]) -> None:
    """Log each (task id, reason), and tell whoever listens."""
    for task_id, reason in dead:
        logger.error("task %s is dead: %s", task_id, reason)
        hooks.dead(task_id, reason)
