"""The commands that stop and restart delivery: ``pause`` and ``resume``."""

from __future__ import annotations

from collections.abc import Callable
from shlex import quote
from typing import Any

import click

from ...core.logs import plain
from ...core.store import Pause, lane_in_words
from .. import pausing
from .common import ErrorSentences, UsageErrors, delayq_of, examples
from .looks import CeleryCommand, CeleryOption
from .unknown import say_unknown


def _of(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options ``--queue`` and ``--task`` to a command."""
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
    help="Count the pause as lateness, for tasks with a grace period.",
)  # fmt: skip
@click.pass_context
def pause(ctx: click.Context, /, queue: str | None, task: str | None, late: bool, **_: Any) -> None:
    """Pause a queue, a task, or everything."""
    with UsageErrors():
        pausing.pause(delayq_of(ctx), queue=queue, task=task, late=late)
    ctx.obj.echo(plain(f"{lane_in_words(queue, task)} is paused"))
    say_unknown(ctx, queue=[queue] if queue else [], task=[task] if task else [])


@click.command(cls=CeleryCommand, epilog=examples("resume --queue mail --rate 100"))
@_of
@click.option(
    "--rate", type=float, cls=CeleryOption, help_group="Resuming", metavar="N",
    help="Deliver at most N of the tasks that are due by now per second.",
)  # fmt: skip
@click.pass_context
def resume(
    ctx: click.Context, /, queue: str | None, task: str | None, rate: float | None, **_: Any
) -> None:
    """Resume a queue, a task, or everything."""
    with UsageErrors():
        was_paused = pausing.resume(delayq_of(ctx), queue=queue, task=task, rate=rate)
    if not was_paused:
        raise click.ClickException(plain(_not_paused(ctx, queue, task)))
    ctx.obj.echo(plain(f"{lane_in_words(queue, task)} is resumed"))


def _not_paused(ctx: click.Context, queue: str | None, task: str | None) -> str:
    """Return why there is nothing to resume; for everything, also the pauses that there are."""
    if queue is not None or task is not None:
        return f"{lane_in_words(queue, task)} is not paused"
    with ErrorSentences():
        pauses = [found for found in pausing.pauses(delayq_of(ctx)) if not found.resumed]
    if not pauses:
        return "nothing is paused"
    paused = ", ".join(f"{found.what} (resume {_option(found)})" for found in pauses)
    return f"there is no pause of everything; paused: {paused}"


def _option(pause: Pause) -> str:
    kind, name = ("--task", pause.task) if pause.queue is None else ("--queue", pause.queue)
    return f"{kind} {quote(name or '')}"
