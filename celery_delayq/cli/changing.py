"""The commands that change what is scheduled: ``cancel`` and ``reschedule``."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import click
from celery.bin.base import CeleryCommand, CeleryOption

from ..errors import DelayQError, InvalidDueTime
from ..logs import plain
from ..store import Outcome
from .common import REFUSED, Said, delayq_of, time_of

_RELATIVE = re.compile(r"\+(\d+(?:\.\d+)?)([smhd]?)")
_UNITS = {"": "seconds", "s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


@click.command(cls=CeleryCommand)
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@click.option(
    "--revoke", is_flag=True, cls=CeleryOption, help_group="Cancelling",
    help="Tell the workers to drop what has left already.",
)  # fmt: skip
@click.pass_context
def cancel(ctx: click.Context, /, ids: Sequence[str], revoke: bool, **_: Any) -> None:
    """Cancel scheduled tasks."""
    report(ctx, "cancelled", ids, lambda one: delayq_of(ctx).cancel(one, revoke=revoke))


@click.command(cls=CeleryCommand)
@click.argument("id")
@click.argument("when")
@click.pass_context
def reschedule(ctx: click.Context, /, id: str, when: str, **_: Any) -> None:
    """Give a scheduled task another due time.

    WHEN is ISO 8601 text, Unix time in seconds, or from now: +90, +90s, +5m, +2h, +1d.
    """
    with Said():
        relative = _RELATIVE.fullmatch(when)
        time = {"after": _span(relative)} if relative else {"at": time_of(when)}
        report(ctx, "rescheduled", [id], lambda one: delayq_of(ctx).reschedule(one, **time))


def report(
    ctx: click.Context, done: str, ids: Sequence[str], step: Callable[[str], Outcome]
) -> None:
    """Take a step of each task, say what came of it, and end with 1 where one was refused."""
    refused = 0
    for one in ids:
        try:
            outcome = step(one)
            said = f"task {one} {done}" if outcome else REFUSED[outcome].format(one)
        except DelayQError as error:
            outcome, said = None, f"Error: {error}"
        if outcome:
            ctx.obj.echo(plain(said))
        else:
            ctx.obj.error(plain(said))
            refused += 1
    if refused:
        ctx.exit(1)


def _span(relative: re.Match[str]) -> timedelta:
    number, unit = relative.groups()
    try:
        return timedelta(**{_UNITS[unit]: float(number)})
    except OverflowError:
        raise InvalidDueTime(relative.group(), "a shorter delay") from None
