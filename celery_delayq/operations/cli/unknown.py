"""Notes about queue and task names that this app does not know, and that may be misspelt."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

import click

from ...core.services import HasServices
from ...core.tasks import reading
from ...core.tasks.reading import Picks
from ...core.tasks.selection import Selection
from ...core.text import plain
from .. import finding
from .common import delayq_of

MOST = 10_000  # tasks in the store; with more, it does not search them for a name


def say_unknown(
    ctx: click.Context,
    *,
    queue: Iterable[str] = (),
    task: Iterable[str] = (),
    tag: Iterable[str] = (),
) -> None:
    """Print a note to standard error for each name that this app does not know.

    It ignores any error, as the command itself has already run.
    """
    delayq, app = delayq_of(ctx), ctx.obj.app
    with suppress(Exception):
        for name in queue:
            if name not in app.amqp.queues and _is_alone(delayq, Picks(queue=name, limit=1)):
                said = f"this app knows no queue {name!r}, and nothing waits for it"
                ctx.obj.error(f"{said}{_meant(delayq, 'queue', name)}")
        for name in task:
            app.loader.import_default_modules()  # as a worker does
            if name not in app.tasks and _is_alone(delayq, Picks(task=name, limit=1)):
                said = f"this app knows no task {name!r}, and none waits"
                ctx.obj.error(f"{said}{_meant(delayq, 'task', name)}")
        for name in tag:
            if meant := _meant(delayq, "tag", name):
                ctx.obj.error(f"no task has the tag {name!r}{meant}")


def _meant(delayq: HasServices, kind: str, name: str) -> str:
    names = finding.suggested(delayq, kind, name)
    return f"; did you mean {plain(' or '.join(names))}?" if names else ""


def _is_alone(delayq: HasServices, picks: Picks) -> bool:
    """Return whether no waiting task has a name, which other apps may know."""
    return _is_small(delayq) and not any(True for _ in Selection(delayq.services, picks))


def _is_small(delayq: HasServices) -> bool:
    counts = reading.counts(delayq)
    return counts.scheduled + counts.paused + counts.in_flight + counts.dead <= MOST
