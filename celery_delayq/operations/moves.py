"""Shared by moves of one task and of many: conditions, and a warning about expired tasks."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import tzinfo
from typing import Any, Literal

from .. import clock
from ..clock import TimeInput, from_ms
from ..errors import InvalidDueTime, InvalidOption
from ..logs import logger_of

logger = logger_of(__name__)

_LAPSED = "task %s: due at %s, but expires at %s: no worker will run it%s"

#: The ``only=`` of a reschedule: the direction in which a task may move.
Direction = Literal["earlier", "later"]


def conditions(zone: tzinfo, only: Direction | None, if_due: TimeInput | None) -> dict[str, Any]:
    """Return the conditions of a reschedule for the store; naive times are in *zone*.

    Raises:
        InvalidOption: *only* is not a direction.
        InvalidDueTime: *if_due* is not a time.
    """
    if only not in (None, "earlier", "later"):
        raise InvalidOption("only", only, "'earlier' or 'later'")
    if_due_ms = None if if_due is None else clock.at(if_due, zone).ms
    return {"only": only or "", "if_due_ms": if_due_ms}


def warn_of_expiry(zone: tzinfo, tasks: Iterable[tuple[str, int, str]]) -> None:
    """Warn about tasks that expire before they are due: workers will drop them.

    Args:
        zone: The time zone of naive times.
        tasks: For each task its id, its due time in ms, and the ``expires`` of its message.
    """
    lapsed = [one for one in tasks if _expires_first(zone, *one[1:])]
    if lapsed:
        (task_id, due_ms, expires), more = lapsed[0], len(lapsed) - 1
        expiry = from_ms(clock.to_ms(expires, zone)).isoformat()
        rest = f"; the same applies to {more} more" if more else ""
        logger.warning(_LAPSED, task_id, from_ms(due_ms).isoformat(), expiry, rest)


def _expires_first(zone: tzinfo, due_ms: int, expires: str) -> bool:
    try:
        return bool(expires) and clock.to_ms(expires, zone) <= due_ms
    except InvalidDueTime:
        return False  # workers cannot read this time either
