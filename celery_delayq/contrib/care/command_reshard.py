"""The command ``reshard``, which moves a store to another number of shards."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import click

from ...core.settings import MOST_SHARDS
from ...operations.cli.common import (
    Argument,
    CeleryCommand,
    CeleryOption,
    ErrorSentences,
    confirm,
    delayq_of,
    examples,
)
from ...operations.cli.output import counting
from .resharding import Estimate, Resharding


@click.command(
    cls=CeleryCommand,
    epilog=examples("reshard 6 --dry-run", "reshard 6", "reshard --abort"),
)
@click.argument(
    "shards", type=click.IntRange(1, MOST_SHARDS), required=False, cls=Argument,
    help="The new number of shards.",
)  # fmt: skip
@click.option(
    "--dry-run", is_flag=True, cls=CeleryOption, help_group="Reshard",
    help="Only tell how long it takes, and how much memory.",
)  # fmt: skip
@click.option(
    "--abort", is_flag=True, cls=CeleryOption, help_group="Reshard",
    help="Give an unfinished resharding up; the store is as before.",
)  # fmt: skip
@click.option("--yes", is_flag=True, cls=CeleryOption, help_group="Reshard", help="Do not ask.")
@click.pass_context
def reshard(
    ctx: click.Context, /, shards: int | None, dry_run: bool, abort: bool, yes: bool, **_: Any
) -> None:
    """Move the store to another number of shards.

    Meanwhile nothing is scheduled, changed or delivered: such calls raise StoreUnavailable, and
    scanners wait. Reading goes on. It copies everything in the store; then the number changes,
    and it deletes the old keys. Running processes use the new number from then on, with a warning;
    set delayq_shards to it.

    If the command is interrupted, run it again to finish, or with --abort to give up. Until the
    number changes, the store is as before. It needs memory for a second copy of all tasks.
    """
    if (shards is None) is not abort or (abort and dry_run):
        raise click.UsageError("pass the new number of shards, or --abort.", ctx)
    services, say = delayq_of(ctx).services, ctx.obj.echo
    with (
        ErrorSentences(),
        counting(ctx, "reshard", _copied) as taken,
        closing(Resharding(services, taken)) as resharding,
    ):
        if shards is None:
            say("aborted" if resharding.abort() else "nothing to abort")
            return
        number, phase = resharding.shards(), resharding.under_way()
        if phase is None and number in (None, shards):
            say("no process has used this store yet" if number is None else _HAS % shards)
            return
        if phase is None or dry_run:
            say(_told(number or 1, shards, resharding.estimate(shards)))
        if dry_run:
            return
        if phase is None and not yes:
            confirm("continue?")
        resharding.run(shards)
        say(f"{_HAS % shards}; set delayq_shards to {shards}")


_HAS = "the store's number of shards is %d"


def _copied(count: int) -> str:
    return f"{count:,} tasks copied"


def _told(before: int, after: int, takes: Estimate) -> str:
    lacks = f"; Redis lacks {takes.lacks / 1e6:,.1f} MB of that" if takes.lacks else ""
    return (
        f"from {before} to {after} shards: {takes.entries:,} tasks; about {takes.seconds:,.0f} s "
        f"in which the store can only be read; {takes.bytes / 1e6:,.1f} MB more memory{lacks}"
    )
