"""The conditions of a reschedule, of one task or of many."""

from __future__ import annotations

from datetime import tzinfo
from typing import Literal

from .. import clock
from ..clock import TimeInput, When, due_in_ms
from ..errors import InvalidOption
from ..store import Match
from ..store.changes import Conditions

#: The ``only=`` of a reschedule: the direction in which a task may move.
Direction = Literal["earlier", "later"]


def conditions_of(zone: tzinfo, only: Direction | None, if_due: TimeInput | None) -> Conditions:
    """Return the conditions of a reschedule for the store; naive times are in *zone*.

    Raises:
        InvalidOption: *only* is not a direction.
        InvalidDueTime: *if_due* is not a time.
    """
    if only not in (None, "earlier", "later"):
        raise InvalidOption("only", only, "'earlier' or 'later'")
    if_due_ms = None if if_due is None else clock.at(if_due, zone).ms
    return Conditions(only or "", if_due_ms)


def would_move(met: Match, when: When, conditions: Conditions) -> bool:
    """Return whether ``reschedule.lua`` would move an entry."""
    if conditions.if_due_ms not in (None, met.due_ms):
        return False
    if when.mode == "by":
        new_ms = max(0, met.due_ms + when.ms)
    else:
        new_ms = due_in_ms(when.us + (met.now_us if when.mode == "after" else 0), met.now_us)
    if conditions.only == "earlier":
        return new_ms < met.due_ms
    return conditions.only != "later" or new_ms > met.due_ms
