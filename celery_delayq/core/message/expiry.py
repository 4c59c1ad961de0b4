"""When a task, or its chord, expires, and a warning if that is before the task is due."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from celery import Celery
from celery.backends.base import Backend, DisabledBackend

from .. import clock
from ..clock import from_ms
from ..errors import InvalidDueTime
from ..logs import logger_of
from ..settings import written
from ..store.record import LAST_MS
from .signatures import options_after

logger = logger_of(__name__)

_LAPSED = "task %s: due at %s, but expires at %s: no worker will run it%s"
_FORGOTTEN = (
    "task %s: waits for %.0f s, but the result backend keeps its chord for %.0f s, so the chord's "
    "body may never run; set %s to at least %d, plus the time that the task runs"
)


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


def warn_of_chord(app: Celery, message: Any, seconds: float, warned: dict[str, float]) -> None:
    """Warn if the result backend forgets a chord before one of its parts is due.

    Args:
        app: The app that sends the part.
        message: The part's message, as Celery made it; of any other task, there is no warning.
        seconds: How long after the chord's start the part is due.
        warned: The longest wait that was warned of, by the name of the task. Only a longer one is
            warned of again, so that a chord of a thousand parts causes one line.
    """
    _, _, embed = message.body
    if not (embed.get("chord") or any(after.get("chord") for after in options_after(embed))):
        return
    setting, keeps = _chord_expiry(app.backend)
    name, least = message.headers["task"], int(seconds) + 1
    if keeps and least > warned.get(name, keeps):
        warned[name] = least
        task_id, setting = message.headers["id"], written(app.conf, setting)
        logger.warning(_FORGOTTEN, task_id, seconds, keeps, setting, least)


def _chord_expiry(backend: Any) -> tuple[str, float]:
    """Return the setting that says how long a backend keeps a chord, and the seconds; 0: no end."""
    if isinstance(backend, DisabledBackend):
        return "", 0
    setting, expires = "result_expires", backend.expires
    # Since Celery 5.7. A backend that counts no parts looks at their results instead.
    if hasattr(backend, "chord_expires") and (
        backend.implements_incr or type(backend).apply_chord is not Backend.apply_chord
    ):
        setting, expires = "result_chord_expires", backend.chord_expires
    if isinstance(expires, timedelta):
        expires = expires.total_seconds()
    return setting, float(expires or 0)
