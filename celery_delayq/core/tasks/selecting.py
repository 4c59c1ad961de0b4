"""Selects many tasks by filters."""

from __future__ import annotations

from datetime import tzinfo
from typing import Any

from celery.app.task import Task

from ..clock import TimeInput
from ..errors import InvalidOption
from ..services import HasServices
from ..store import Filter, State
from .filters import OneOf, check_limit, filter_of
from .selection import Selection

_EXPECTED = (
    "tag=, task=, queue=, state=, after_due= or before_due=, which pick tasks, or all=True for "
    "every task"
)


def select(
    delayq: HasServices,
    *,
    tag: OneOf[str] | None = None,
    task: OneOf[Task[..., Any] | str] | None = None,
    queue: OneOf[str] | None = None,
    state: OneOf[State | str] | None = None,
    after_due: TimeInput | None = None,
    before_due: TimeInput | None = None,
    all: bool = False,
    limit: int | None = None,
    cursor: str | None = None,
) -> Selection:
    """Select tasks to count, read or change; a task must match every given filter.

    Each of *tag*, *task*, *queue* and *state* takes a list too, of up to 100 values: a task then
    matches if it has any of them.

    Selecting by tag, or by one of the states ``DEAD`` and ``IN_FLIGHT``, reads only the matches.
    Any other filter scans all waiting tasks: a few seconds of Redis's time per million, in short
    steps.

    Args:
        tag: Tasks with this tag.
        task: Calls of this task; a task or its name.
        queue: Tasks sent with this queue.
        state: Tasks in this state.
        after_due: Tasks due at this time or later.
        before_due: Tasks due before this time.
        all: Every task; required if no filter is given.
        limit: The first so many of these tasks, whether the operation then changes them or not.
        cursor: Continue after the ``cursor`` of an earlier selection with the same filters.

    Raises:
        InvalidOption: no filter was given, or an invalid one; *limit* is not a whole number, or
            below 0; or *cursor* is invalid, or belongs to another selection or store.
        InvalidDueTime: not a time.
    """
    chosen = checked_filter(
        delayq.services.timezone,
        tag=tag,
        task=task,
        queue=queue,
        state=state,
        after_due=after_due,
        before_due=before_due,
        all=all,
        limit=limit,
    )
    return Selection(delayq.services, chosen, cursor, limit)


def checked_filter(
    zone: tzinfo,
    *,
    tag: OneOf[str] | None,
    task: OneOf[Task[..., Any] | str] | None,
    queue: OneOf[str] | None,
    state: OneOf[State | str] | None,
    after_due: TimeInput | None,
    before_due: TimeInput | None,
    all: bool,
    limit: int | None,
) -> Filter:
    """Return the filter of a selection; arguments and errors are those of :func:`select`."""
    filters = (tag, task, queue, state, after_due, before_due)
    if all is not True and not any(value is not None for value in filters):
        raise InvalidOption("all", all, _EXPECTED)
    check_limit(limit, "tasks")
    return filter_of(
        zone,
        tag=tag,
        task=task,
        queue=queue,
        state=state,
        after_due=after_due,
        before_due=before_due,
    )
