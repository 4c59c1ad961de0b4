"""Checks a caller's filters and limits; see :func:`selecting.select`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import tzinfo
from functools import partial
from typing import Any, TypeVar, Union

from .. import clock
from ..clock import TimeInput
from ..errors import InvalidOption
from ..store import Filter, State, checked_name

MOST = 100  # values of one filter: scripts compare each entry with all of them


Text = TypeVar("Text", bound=str)
Value = TypeVar("Value")
#: A filter's value, or a list of values of which any is enough.
OneOf = Union[Value, Sequence[Value], set[Value], frozenset[Value]]


def filter_of(
    zone: tzinfo,
    *,
    tag: Any = None,
    task: Any = None,
    queue: Any = None,
    state: Any = None,
    after_due: TimeInput | None = None,
    before_due: TimeInput | None = None,
) -> Filter:
    """Return the filter for the store; the arguments are those of ``select``.

    Raises:
        InvalidOption: a value is none of its option.
        InvalidDueTime: not a time.
    """
    return Filter(
        tags=_values("tag", tag, partial(checked_name, "tag")),
        tasks=_values("task", task, _task_name),
        queues=_values("queue", queue, _queue_name),
        states=_values("state", state, _state),
        after_ms=None if after_due is None else clock.at(after_due, zone).ms,
        before_ms=None if before_due is None else clock.at(before_due, zone).ms,
    )


def check_limit(limit: int | None, things: str) -> None:
    """Raise ``InvalidOption`` if *limit* is not a valid number of *things*."""
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 0):
        raise InvalidOption("limit", limit, f"a whole number of {things} from 0")


def _values(name: str, given: Any, checked: Callable[[Any], Text]) -> tuple[Text, ...]:
    """Return the values of a filter, each once; none if it was not given."""
    if given is None:
        return ()
    some = given if isinstance(given, (list, tuple, set, frozenset)) else [given]
    # A list without values would otherwise select everything.
    if not 0 < len(some) <= MOST:
        raise InvalidOption(name, given, f"one value, or a list of 1 to {MOST}")
    return tuple(sorted({checked(value) for value in some}))


def _task_name(task: Any) -> str:
    name = task if isinstance(task, str) else getattr(task, "name", None)
    if not isinstance(name, str) or not name:
        raise InvalidOption("task", task, "a task, or a task's name")
    return name


def _queue_name(queue: Any) -> str:
    if not isinstance(queue, str) or not queue:
        raise InvalidOption("queue", queue, "a queue's name")
    return queue


def _state(state: Any) -> State:
    try:
        return State(state.upper() if isinstance(state, str) else state)
    except ValueError:
        names = ", ".join(known.value for known in State)
        raise InvalidOption("state", state, f"a State, or one of {names}") from None
