"""Notes about queue and task names that this app does not know, and that may be misspelt."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

import click

from ..operations import reading, selecting
from ..services import HasServices
from .common import delayq_of

MOST = 10_000  # tasks in the store; with more, it does not search them for a name


def say_unknown(ctx: click.Context, *, queue: Iterable[str] = (), task: Iterable[str] = ()) -> None:
    """Print a note to standard error for each name that this app does not know.

    It ignores any error, as the command itself has already run.
    """
    named = [*({"queue": one} for one in queue), *({"task": one} for one in task)]
    for one in named:
        with suppress(Exception):
            note = _note(ctx, **one)
            if note is not None:
                ctx.obj.error(note)


def _note(ctx: click.Context, *, queue: str | None = None, task: str | None = None) -> str | None:
    """Return a note about a name that may be misspelt; other apps may still know it."""
    app = ctx.obj.app
    if task is None:
        known = app.amqp.queues
        note = f"this app knows no queue {queue!r}, and nothing waits for it"
    else:
        app.loader.import_default_modules()  # as a worker does
        known, note = app.tasks, f"this app knows no task {task!r}, and none waits"
    delayq = delayq_of(ctx)
    if (queue or task) in known or not _is_small(delayq):
        return None
    waits = any(True for _ in selecting.select(delayq, queue=queue, task=task, limit=1))
    return None if waits else note


def _is_small(delayq: HasServices) -> bool:
    counts = reading.counts(delayq)
    return counts.scheduled + counts.paused + counts.in_flight + counts.dead <= MOST
