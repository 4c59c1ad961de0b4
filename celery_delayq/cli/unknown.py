"""Notes about queue and task names that this app does not know, and that may be misspelt."""

from __future__ import annotations

from contextlib import suppress

import click

from ..operations import filters, reading
from ..services import HasServices
from .common import delayq_of

MOST = 10_000  # tasks in the store; with more, it does not search them for a name


def say_unknown(ctx: click.Context, *, queue: str | None = None, task: str | None = None) -> None:
    """Print a note to standard error for each name that this app does not know.

    It ignores any error, as the command itself has already run.
    """
    for named in ({"queue": queue, "task": None}, {"queue": None, "task": task}):
        with suppress(Exception):
            note = _note(ctx, **named)
            if note is not None:
                ctx.obj.error(note)


def _note(ctx: click.Context, queue: str | None, task: str | None) -> str | None:
    """Return a note about a name that may be misspelt; other apps may still know it."""
    app = ctx.obj.app
    if task is None:
        known, note = (
            app.amqp.queues,
            "this app knows no such queue, and nothing waits for it",
        )
    else:
        app.loader.import_default_modules()  # as a worker does
        known, note = app.tasks, "this app knows no such task, and none waits"
    name, delayq = queue or task, delayq_of(ctx)
    if name is None or name in known or not _is_small(delayq):
        return None
    waits = any(True for _ in filters.select(delayq, queue=queue, task=task))
    return None if waits else note


def _is_small(delayq: HasServices) -> bool:
    counts = reading.counts(delayq)
    return counts.scheduled + counts.paused + counts.in_flight + counts.dead <= MOST
