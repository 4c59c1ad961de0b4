"""The command that a probe runs: ``health``."""

from __future__ import annotations

import json
from typing import Any

import click

from ..logs import plain
from ..operations.health import MAX_DEAD, MAX_OVERDUE
from ..operations.health import health as health_now
from .common import ErrorSentences, delayq_of, examples, json_option
from .looks import CeleryCommand, CeleryOption

_BOUNDS = {"cls": CeleryOption, "help_group": "Bounds", "show_default": True}


@click.command(
    cls=CeleryCommand, epilog=examples("health", "health --max-overdue 300 --max-dead 10")
)
@click.option(
    "--max-overdue", type=click.FloatRange(0), default=MAX_OVERDUE, metavar="SECONDS", **_BOUNDS,
    help="For so long a task may be overdue.",
)  # fmt: skip
@click.option(
    "--max-dead", type=click.IntRange(0), default=MAX_DEAD, metavar="TASKS", **_BOUNDS,
    help="So many may be dead.",
)  # fmt: skip
@click.option(
    "--here", is_flag=True, cls=CeleryOption, help_group="Bounds",
    help="Only ask whether a scanner of this host is alive.",
)  # fmt: skip
@json_option
@click.pass_context
def health(
    ctx: click.Context, /, max_overdue: float, max_dead: int, here: bool, as_json: bool, **_: Any
) -> None:
    """Tell whether tasks are handed over in time, for a probe.

    Exit status 1, and a sentence for each thing that is wrong, where no scanner is alive or they
    have another broker than the app, a task has been overdue for too long, too many are dead, or
    the store cannot be read. What is paused is not overdue. No broker is needed.
    """
    with ErrorSentences():
        problems = health_now(delayq_of(ctx), max_overdue=max_overdue, max_dead=max_dead, here=here)
    if as_json:
        ctx.obj.echo(json.dumps({"healthy": not problems, "problems": problems}))
    else:
        for line in problems or ["healthy"]:
            ctx.obj.echo(plain(line))
    if problems:
        ctx.exit(1)
