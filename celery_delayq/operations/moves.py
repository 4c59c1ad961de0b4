"""Shared by changes of one task and of many: conditions, and notes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import tzinfo
from typing import Any, Literal

from .. import clock
from ..clock import TimeInput, When, due_in_ms
from ..errors import InvalidDueTime, InvalidOption
from ..message.expiry import warn_of_expiry
from ..services import Services
from ..store import Change, Filter, Match, Shard, changes
from .count import Tally

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
