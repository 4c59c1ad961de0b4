"""When a task expires, and a warning if that is before it is due."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from .. import clock
from ..clock import from_ms
from ..errors import InvalidDueTime
from ..logs import logger_of
from ..store.record import LAST_MS

logger = logger_of(__name__)

_LAPSED = "task %s: due at %s, but expires at %s: no worker will run it%s"


def expiry_after(due: datetime, seconds: float) -> datetime:
    """Return *due* plus some seconds, or the last possible time if that is too late."""
    last = from_ms(LAST_MS)
    try:
        return min(due + timedelta(seconds=seconds), last)
    except OverflowError:  # Celery could add it to now, but the due time may be centuries later
        return last


def warn_of_expiry(tasks: Iterable[tuple[str, int, str]]) -> None:
    """Warn about tasks that expire before they are due: workers will drop them.

    Args:
        tasks: For each task its id, its due time in ms, and the ``expires`` of its message.
    """
    lapsed = [task for task in tasks if _expires_first(*task[1:])]
    if lapsed:
        (task_id, due_ms, expires), more = lapsed[0], len(lapsed) - 1
        expiry = clock.celery_time(expires).isoformat()
        rest = f"; the same applies to {more} more" if more else ""
        logger.warning(_LAPSED, task_id, from_ms(due_ms).isoformat(), expiry, rest)


def _expires_first(due_ms: int, expires: str) -> bool:
    try:
        return bool(expires) and clock.celery_time(expires) <= from_ms(due_ms)
    except InvalidDueTime:
        return False  # workers cannot read this time either
