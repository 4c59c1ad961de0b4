"""Shared by changes of one task and of many: conditions, notes, a warning about expired tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import tzinfo
from typing import Any, Literal

from .. import clock
from ..clock import TimeInput, When, due_in_ms, from_ms
from ..errors import InvalidDueTime, InvalidOption
from ..logs import logger_of
from ..services import Services
from ..store import Change, Filter, Match, Shard, changes
from .count import Tally

logger = logger_of(__name__)

_LAPSED = "task %s: due at %s, but expires at %s: no worker will run it%s"

#: The ``only=`` of a reschedule: the direction in which a task may move.
Direction = Literal["earlier", "later"]

#: A step of the store for entries of a selection.
Steps = Callable[[Shard, list[bytes]], Iterator[list[Change]]]


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


def moving(chosen: Filter, when: When, how: dict[str, Any]) -> Steps:
    """Return the step that moves the entries of a selection."""

    def steps(link: Shard, targets: list[bytes]) -> Iterator[list[Change]]:
        return changes.reschedule(link, targets, when, chosen=chosen.text, **how)

    return steps


def would_move(met: Match, when: When, asked: dict[str, Any]) -> bool:
    """Return whether ``reschedule.lua`` would move an entry."""
    if asked["if_due_ms"] not in (None, met.due_ms):
        return False
    if when.mode == "by":
        new_ms = max(0, met.due_ms + when.ms)
    else:
        new_ms = due_in_ms(when.us + (met.now_us if when.mode == "after" else 0), met.now_us)
    if asked["only"] == "earlier":
        return new_ms < met.due_ms
    return asked["only"] != "later" or new_ms > met.due_ms


def warn_of_expiry(tasks: Iterable[tuple[str, int, str]]) -> None:
    """Warn about tasks that expire before they are due: workers will drop them.

    Args:
        tasks: For each task its id, its due time in ms, and the ``expires`` of its message.
    """
    lapsed = [one for one in tasks if _expires_first(*one[1:])]
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


def note(services: Services, tally: Tally, made: Sequence[Change]) -> None:
    """Count a selection's changes, and notify of them.

    Raises:
        InvalidDueTime: a task would be due too late.
    """
    hooks = services.hooks
    for change in made:
        tally.changed(change.outcome)
        if change.due_ms is not None:
            hooks.rescheduled(change.task_id, change.due_ms)
    moved = [(one.task_id, one.due_ms, one.expires) for one in made if one.due_ms is not None]
    warn_of_expiry(moved)
    removed = [one.cancelled for one in made if one.cancelled is not None]
    if removed:
        hooks.cancelled(removed)
    for change in made:
        # An unreadable task stays as it is, as in an operation on one task.
        if isinstance(change.error, InvalidDueTime):
            raise change.error
