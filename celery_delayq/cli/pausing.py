"""The commands that hold back what falls due: ``pause`` and ``resume``."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from shlex import quote
from typing import Any

import click
from celery.bin.base import CeleryCommand, CeleryOption

from ..integration.delayq import DelayQ
from ..logs import plain
from ..store import Pause, lane_in_words
from .common import Said, Typed, delayq_of, examples

MOST = 10_000  # tasks in the store that are looked through for a name


def _of(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that say what is meant."""
    for name, text in (("task", "Only tasks of this name."), ("queue", "Only of this queue.")):
        option = click.option(
            f"--{name}", cls=CeleryOption, help_group="What", metavar=name.upper(), help=text
        )
        command = option(command)
    return command


@click.command(cls=CeleryCommand, epilog=examples("pause --queue mail"))
@_of
@click.option(
    "--late", is_flag=True, cls=CeleryOption, help_group="Pausing",
    help="Count the pause as lateness for tasks with a grace.",
)  # fmt: skip
@click.pass_context
def pause(ctx: click.Context, /, queue: str | None, task: str | None, late: bool, **_: Any) -> None:
    """Pause a queue, a task, or everything."""
    with Typed():
        delayq_of(ctx).pause(queue=queue, task=task, late=late)
    ctx.obj.echo(plain(f"{lane_in_words(queue, task)} is paused"))
    # The pause is in force, whatever fails here.
    with suppress(Exception):
        note = _note(ctx, queue, task)
        if note is not None:
            ctx.obj.error(note)


def _note(ctx: click.Context, queue: str | None, task: str | None) -> str | None:
    """What to say of a name that may be misspelt, though it may be that only others know it."""
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
    waits = any(True for _ in delayq.select(queue=queue, task=task))
    return None if waits else note


def _is_small(delayq: DelayQ) -> bool:
    counts = delayq.counts()
    return counts.scheduled + counts.paused + counts.in_flight + counts.dead <= MOST


@click.command(cls=CeleryCommand, epilog=examples("resume --queue mail --rate 100"))
@_of
@click.option(
    "--rate", type=float, cls=CeleryOption, help_group="Resuming", metavar="N",
    help="Hand over what has fallen due meanwhile at so many a second.",
)  # fmt: skip
@click.pass_context
def resume(
    ctx: click.Context, /, queue: str | None, task: str | None, rate: float | None, **_: Any
) -> None:
    """Resume what is paused."""
    with Typed():
        was_paused = delayq_of(ctx).resume(queue=queue, task=task, rate=rate)
    if not was_paused:
        raise click.ClickException(plain(_not_paused(ctx, queue, task)))
    ctx.obj.echo(plain(f"{lane_in_words(queue, task)} is resumed"))


def _not_paused(ctx: click.Context, queue: str | None, task: str | None) -> str:
    """Why there is nothing to resume; what is paused, where everything was meant."""
    if queue is not None or task is not None:
        return f"{lane_in_words(queue, task)} is not paused"
    with Said():
        pauses = [one for one in delayq_of(ctx).pauses() if not one.resumed]
    if not pauses:
        return "nothing is paused"
    paused = ", ".join(f"{one.what} (resume {_option(one)})" for one in pauses)
    return f"there is no pause of everything; paused: {paused}"


def _option(pause: Pause) -> str:
    kind, name = ("--task", pause.task) if pause.queue is None else ("--queue", pause.queue)
    return f"{kind} {quote(name or '')}"
