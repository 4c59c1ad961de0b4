"""The commands that stop and restart delivery: ``pause`` and ``resume``.

A pause or a resume of everything is a change of many: it needs ``--all``, and asks.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, NamedTuple

import click

from ...core.store import Pause, lane_in_words
from ...core.tasks import reading
from ...core.text import counted, plain
from .. import pausing
from .common import UsageErrors, advised, confirm, delayq_of, examples
from .looks import CeleryCommand, CeleryOption
from .unknown import say_unknown

_FLAGS = (
    ("--all", "Everything."),
    ("--dry-run", "Only count the tasks; for --all."),
    ("--yes", "Do not ask for confirmation."),
)


class _Lane(NamedTuple):
    """The lane that a command line names: a queue, a task, or everything.

    Attributes:
        queue: The queue, or ``None``.
        task: The name of the task, or ``None``.
        asks: Whether to ask before the change.
        dry_run: Whether to count only.
    """

    queue: str | None
    task: str | None
    asks: bool
    dry_run: bool

    def __str__(self) -> str:
        return lane_in_words(self.queue, self.task)

    @property
    def named(self) -> dict[str, Any]:
        """The arguments of :func:`pausing.pause` that name it."""
        return {"queue": self.queue, "task": self.task, "all": self.queue is self.task is None}


def _of_lane(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that name a lane to a command, which gets a :class:`_Lane`."""

    @click.pass_context
    @wraps(command)
    def decorated(
        ctx: click.Context, /, *, queue: str | None, task: str | None, all: bool, dry_run: bool,
        yes: bool, **own: Any,
    ) -> None:  # fmt: skip
        if (queue is not None) + (task is not None) + all != 1:
            raise click.UsageError("Name a --queue or a --task, or pass --all.", ctx)
        if dry_run and not all:
            raise click.UsageError("--dry-run counts all tasks, for --all; it takes no name.", ctx)
        command(ctx, _Lane(queue, task, all and not yes, dry_run), **own)

    of_lane: Callable[..., None] = decorated
    for name, text in reversed(_FLAGS):
        flag = click.option(name, is_flag=True, cls=CeleryOption, help_group="What", help=text)
        of_lane = flag(of_lane)
    for name, text in (("task", "Only tasks of this name."), ("queue", "Only of this queue.")):
        option = click.option(
            f"--{name}", cls=CeleryOption, help_group="What", metavar=name.upper(), help=text
        )
        of_lane = option(of_lane)
    return of_lane


@click.command(cls=CeleryCommand, epilog=examples("pause --queue mail", "pause --all"))
@_of_lane
@click.option(
    "--late", is_flag=True, cls=CeleryOption, help_group="Pausing",
    help="Count the pause as lateness, for tasks with a grace period.",
)  # fmt: skip
def pause(ctx: click.Context, lane: _Lane, late: bool, **_: Any) -> None:
    """Pause a queue, a task, or everything."""
    delayq = delayq_of(ctx)
    with UsageErrors():
        if lane.asks or lane.dry_run:
            counts = reading.counts(delayq)
            tasks = counted(counts.scheduled + counts.paused)
            if lane.dry_run:
                ctx.obj.echo(f"everything would be paused: {tasks}")
                return
            confirm(f"pause everything: {tasks}?")
        pausing.pause(delayq, **lane.named, late=late)
    ctx.obj.echo(plain(f"{lane} is paused"))
    say_unknown(
        ctx, queue=[lane.queue] if lane.queue else [], task=[lane.task] if lane.task else []
    )


@click.command(
    cls=CeleryCommand, epilog=examples("resume --queue mail --rate 100", "resume --all --rate 50")
)
@_of_lane
@click.option(
    "--rate", type=float, cls=CeleryOption, help_group="Resuming", metavar="N",
    help="Deliver at most N of the tasks that are due by now per second.",
)  # fmt: skip
def resume(ctx: click.Context, lane: _Lane, rate: float | None, **_: Any) -> None:
    """Resume a queue, a task, or everything."""
    with UsageErrors():
        delayq = delayq_of(ctx)
        if lane.asks or lane.dry_run:
            pauses = pausing.pauses(delayq)
            found = next((one for one in pauses if one.what == str(lane)), None)
            if found is None:
                raise click.ClickException(_not_paused(lane, pauses))
            if lane.dry_run:
                ctx.obj.echo(f"everything would be resumed: {found.parked_in_words} due")
                return
            confirm(f"resume everything: {found.parked_in_words} due?")
        if not pausing.resume(delayq, **lane.named, rate=rate):
            raise click.ClickException(_not_paused(lane, pausing.pauses(delayq)))
    ctx.obj.echo(plain(f"{lane} is resumed"))


def _not_paused(lane: _Lane, pauses: list[Pause]) -> str:
    """Return why there is nothing to resume; for everything, also the pauses that there are."""
    held = [found for found in pauses if not found.resumed]
    if not lane.named["all"]:
        return plain(f"{lane} is not paused")
    if not held:
        return "nothing is paused"
    paused = "; ".join(f"{found.what} ({pausing.to_resume(found)})" for found in held)
    return advised(f"there is no pause of everything; paused: {paused}")
