"""Selects many tasks whose messages can be changed, too."""

from __future__ import annotations

from typing import Any

from celery.app.task import Task

from ..core.clock import TimeInput
from ..core.services import HasServices
from ..core.store import State
from ..core.tasks import selection
from ..core.tasks.reading import OneOf
from ..core.tasks.selection import checked_filter
from ..core.threads import awaited
from .selection import RewritableSelection


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
) -> RewritableSelection:
    """Select tasks; see :func:`celery_delayq.core.tasks.selection.select`."""
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
    return RewritableSelection(delayq.services, chosen, cursor, limit)


select.__doc__ = selection.select.__doc__
aselect = awaited(select, reads=True)
