"""The commands by which a store moves, or is kept: ``dump`` and ``load``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

import click

from ..cli.chosen_tasks import counted
from ..cli.common import ErrorSentences, delayq_of, examples
from ..cli.looks import CeleryCommand, CeleryOption
from ..cli.progress import counting
from ..cli.screen import Line, Screen
from ..errors import DelayQError
from ..logs import plain
from ..operations import reading
from ..services import HasServices
from .dumping import dump as dump_of
from .dumping import wait_for_leases
from .lines import DUMP, END, text_of
from .loading import Loaded, steps

_AGAIN = "the same command goes on"
_NOT_ASKED = "whether their ids and keys are taken here was not looked up"
_MOVING = "this store is not paused: what comes or goes meanwhile may be in the dump or not"
_LEAVING = (
    "this store is not paused: once 10,000 tasks have left it, the same dump loaded again may "
    "bring back some of them; --paused prevents that"
)


@click.command(cls=CeleryCommand, epilog=examples("dump > tasks.jsonl", "dump --wait 60 | gzip"))
@click.option(
    "--wait", type=click.FloatRange(0, 86400), default=0.0, cls=CeleryOption, help_group="Moving",
    metavar="SECONDS", help="Wait so long at most until nothing is being published; else exit 1.",
)  # fmt: skip
@click.pass_context
def dump(ctx: click.Context, /, wait: float, **_: Any) -> None:
    """Print all that the store keeps, as JSON lines.

    That is what waits, is in flight or dead, and what is paused. It changes nothing. Before a store
    moves, pause everything, and stop what schedules. The last line counts the others, so a dump
    that was cut is not taken for a whole one.
    """
    delayq = delayq_of(ctx)
    latest: dict[str, dict[str, Any]] = {}  # kind -> line

    def lines() -> Iterator[Line]:
        for line in dump_of(delayq.services):
            latest[line["kind"]] = line
            if line["kind"] == DUMP:
                _say_how_it_stands(ctx, line)
            yield [(text_of(line), "")]

    with ErrorSentences():
        left = wait_for_leases(delayq.services, wait) if wait else 0
        if left:
            raise click.ClickException(f"{counted(left)} still being published; nothing was dumped")
        Screen(ctx).show(lines())
    unreadable = latest[END]["unreadable"]
    if latest[DUMP]["paused"]:
        wrong = _wrong_count(latest[END]["tasks"] + unreadable, delayq)
        if wrong:
            ctx.obj.error(wrong)
    if unreadable:
        ctx.obj.error(f"{counted(unreadable)} cannot be read, and dumped as stored; see check")


def _say_how_it_stands(ctx: click.Context, first: dict[str, Any]) -> None:
    """What there is to say of the store that a dump's first line tells of."""
    if not first["paused"]:
        ctx.obj.error(_MOVING)
    if first["in_flight"]:
        ctx.obj.error(
            f"{counted(first['in_flight'])} being published: dumped as what may have been delivered"
        )
    if first["owed"]:
        ctx.obj.error(
            f"REVOKED is still to be stored for {first['owed']}; scanners of this store do that, "
            "it is in no dump"
        )


def _wrong_count(dumped: int, delayq: HasServices) -> str:
    """What there is to say where a paused store does not hold what was dumped; nothing if it does.

    A dump reads the records, and the counts are those of the indexes that scanners look at.
    """
    try:
        counts = reading.counts(delayq)
    except DelayQError as error:
        return f"whether the store counts {counted(dumped)} could not be asked: {plain(error)}"
    kept = counts.scheduled + counts.paused + counts.in_flight + counts.dead
    if dumped == kept:
        return ""
    return (
        f"{counted(dumped)} dumped, and the store counts {kept} now: something still schedules, "
        "cancels or publishes, or check finds what does not fit"
    )


@click.command(
    cls=CeleryCommand, epilog=examples("load < tasks.jsonl", "load --dry-run < tasks.jsonl")
)
@click.option(
    "--skip-existing", is_flag=True, cls=CeleryOption, help_group="Loading",
    help="Leave out what has the id, or the unique key, of another task that waits here.",
)  # fmt: skip
@click.option(
    "--paused", is_flag=True, cls=CeleryOption, help_group="Loading",
    help="Pause everything first, so that nothing is handed over until resume.",
)  # fmt: skip
@click.option(
    "--dry-run", is_flag=True, cls=CeleryOption, help_group="Loading",
    help="Only look at the lines; not whether their ids and keys are taken.",
)  # fmt: skip
@click.pass_context
def load(ctx: click.Context, /, skip_existing: bool, paused: bool, dry_run: bool, **_: Any) -> None:
    """Load what dump printed, from standard input.

    Each task is kept as it was; what was paused is paused first. The same tasks, loaded again, add
    nothing, so after a kill the same command goes on; where the store is not paused, until 10,000
    tasks have left it. Exit status 1 where something was not loaded.
    """
    if reads_terminal():
        raise click.UsageError("Give it a dump: load < FILE", ctx)
    done, warn = "can be read" if dry_run else "loaded", ctx.obj.error
    options = {"skip_existing": skip_existing, "paused": paused, "dry_run": dry_run}
    whole, failed = Loaded(), 0
    with (
        ErrorSentences(),
        counting(ctx, "load", lambda count: f"{counted(count)} {done}; {_AGAIN}") as taken,
    ):
        services = delayq_of(ctx).services
        services.entries.check_membership()
        try:
            for part in steps(services, sys.stdin.buffer, partial(warn, _LEAVING), **options):
                failed += _say_failed(ctx, part)
                whole.add(part)
                taken(whole.loaded)
        except DelayQError:
            warn(f"{counted(whole.loaded)} {done} so far")
            raise
    _say_what_came_of_it(ctx, whole, done)
    if failed:
        warn(f"{counted(failed)} not loaded")
    if dry_run:
        warn(_NOT_ASKED)
    if failed:
        ctx.exit(1)


def _say_failed(ctx: click.Context, part: Loaded) -> int:
    """Say why some were not loaded, and forget it; how many they are."""
    for error in part.refused:
        ctx.obj.error(plain(error))
    for task_id, why in part.unreadable:
        ctx.obj.error(f"task {plain(task_id)} was dumped as unreadable: {plain(why)}")
    count = len(part.refused) + len(part.unreadable)
    part.refused, part.unreadable = [], []
    return count


def _say_what_came_of_it(ctx: click.Context, whole: Loaded, done: str) -> None:
    ctx.obj.echo(f"{counted(whole.loaded)} {done}")
    if whole.here:
        ctx.obj.echo(f"{counted(whole.here)} here already")
    if whole.left:
        ctx.obj.error(f"{counted(whole.left)} left out: handed over or cancelled here since")
    if whole.skipped:
        ctx.obj.error(f"{counted(whole.skipped)} left out: another has the id or the key")


def reads_terminal() -> bool:
    """Whether somebody would have to type a dump, or there is no standard input at all."""
    return sys.stdin is None or sys.stdin.isatty()
