"""The unique key that the run of a task holds, as its message names it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from celery.exceptions import Ignore

from .. import clock
from ..errors import InvalidDueTime, InvalidOption
from ..store import checked_id, checked_name
from .headers import HOLD_HEADER, PUT_OFFS_HEADER
from .signatures import options_after

_REPLACED = "Replaced by new task"  # the words of Celery's Task.replace


class Hold(NamedTuple):
    """A run holds a key until it has finished.

    Attributes:
        id: The task's id.
        key: The key.
        delivery: Names the delivery; another one of the same task holds the key anew.
        ms: How long it holds after the hand-over, or a worker's last word.
    """

    id: str
    key: str
    delivery: str
    ms: int

    @classmethod
    def of(cls, header: Any, task_id: Any) -> Hold | None:
        """Read the header of a task's message; ``None`` if it has none, or another task's."""
        # Any program may have written it.
        try:
            hold = cls(**header)
            checked_id(hold.id)
            checked_name("key", hold.key)
            checked_name("delivery", hold.delivery)
        except (TypeError, InvalidOption):
            return None
        is_span = type(hold.ms) is int and 0 < hold.ms <= clock.MAX_DUE_MS
        return hold if is_span and hold.id == task_id else None


def continues(headers: Mapping[str, Any], sender: Mapping[str, Any]) -> bool:
    """Whether a message continues the run that sends it: by a retry, a Defer, or a replacement.

    Each of them counts one more. Any other message with the run's id is a task like any other, and
    meets the key's holder.

    Args:
        headers: The message's.
        sender: The request of the run; empty in a worker's main process, which sends tasks again
            whose child was lost.
    """
    return any(
        _count(headers.get(name)) > _count(sender.get(name))
        for name in ("retries", "replaced_task_nesting", PUT_OFFS_HEADER)
    )


def hand_on(hold: Any, run_id: Any, body: Any) -> None:
    """Give the hold of a run to the part of a canvas that gets its id, as it replaces the run.

    Celery's ``Task.replace`` sends the canvas's first parts, whose ids are new; in their messages
    are the rest of a chain and the body of a chord. The part sends the hold as its header.

    Args:
        hold: The hold, as the run's message has it.
        run_id: The run's.
        body: Of a message: arguments, and what goes with them: the rest of its chain, its chord.
    """
    embed = body if isinstance(body, dict) else body[2]
    for options in options_after(embed):
        if options.get("task_id") == run_id:
            options["headers"] = {**(options.get("headers") or {}), HOLD_HEADER: hold}


def _count(value: object) -> int:
    return value if type(value) is int else 0


def ms_until(when: datetime | str | float | None) -> int:
    """Return ms until a retry's time, as Celery's ``Retry`` has it: a time, or seconds.

    A task can raise a ``Retry`` of its own with anything in it; that counts as now.
    """
    try:
        if isinstance(when, (datetime, str)):
            ahead = clock.celery_time(when) - clock.utc_now()
            return max(0, clock.by(ahead).ms)
        return max(0, clock.by(when or 0).ms)
    except InvalidDueTime:
        return 0


def is_replaced(error: object) -> bool:
    """Whether a run ended with this as its task was replaced, by another one with its id."""
    return isinstance(error, Ignore) and error.args[:1] == (_REPLACED,)
