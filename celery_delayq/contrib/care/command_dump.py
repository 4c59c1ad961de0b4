"""The commands ``dump`` and ``load``, which move a store or back it up."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

import click

from ...core.errors import DelayQError
from ...core.services import HasServices
from ...core.tasks import reading
from ...core.text import counted, plain
from ...operations.cli.common import (
    CeleryCommand,
    CeleryOption,
    ErrorSentences,
    delayq_of,
    examples,
)
from ...operations.cli.output import Line, Screen, counting
from .. import rule_store
from .dumping import dump as dump_of
from .dumping import wait_for_leases
from .lines import DUMP, END, RULE, UNREADABLE, text_of
from .loading import Loaded, steps

_AGAIN = "run the same command to continue"
_NOT_ASKED = "ids and keys were not compared with the tasks in this store"
_MOVING = "this store is not paused: tasks that come or go now may or may not be in the dump"
_UNREAD = {
    UNREADABLE: "{} unreadable, dumped as stored, and no load restores that; dump with the newest "
    "release that uses this store, and run check for details",
    RULE: "{} of a later release, dumped; only a release that reads the format can load that",
}
_LEAVING = (
    "this store is not paused: it remembers tasks that leave it only as long as delayq_remember "
    "says; then loading the same dump again may bring them back; pass --paused to prevent that"
)


@click.command(cls=CeleryCommand, epilog=examples("dump > tasks.jsonl", "dump --wait 60 | gzip"))
@click.option(
    "--wait", type=click.FloatRange(0, 86400), default=0.0, cls=CeleryOption, help_group="Moving",
    metavar="SECONDS", help="Wait this long at most until nothing is being published; else exit 1.",
)  # fmt: skip
@click.pass_context
def dump(ctx: click.Context, /, wait: float, **_: Any) -> None:
    """Print the contents of the store as JSON lines.

    These are the waiting, in-flight and dead tasks, the pauses and the rules. It changes nothing.
    Before you move a store, pause everything and stop the processes that schedule. The last line
    counts the others, so load refuses a truncated dump. Exits with 1 if this release cannot read a
    task or a rule, and so could not load it.
    """
    delayq = delayq_of(ctx)
    latest: dict[str, dict[str, Any]] = {}  # kind -> line
    unread = Counter[str]()  # how many lines this release could not load, by kind

    def lines() -> Iterator[Line]:
        for line in dump_of(delayq.services):
            latest[line["kind"]] = line
            unread[line["kind"]] += _is_unread(line)
            if line["kind"] == DUMP:
                _say_how_it_stands(ctx, line)
            yield [(text_of(line), "")]

    with ErrorSentences():
        left = wait_for_leases(delayq.services, wait) if wait else 0
        if left:
            raise click.ClickException(f"{counted(left)} still being published; dumped nothing")
        Screen(ctx).show(lines())
    dumped = latest[END]["tasks"] + latest[END]["unreadable"]
    if latest[DUMP]["paused"] and (wrong := _wrong_count(dumped, delayq)):
        ctx.obj.error(wrong)
    for kind, count in (+unread).items():
        ctx.obj.error(_UNREAD[kind].format(counted(count, "rule" if kind == RULE else "task")))
    if unread.total():
        ctx.exit(1)


def _is_unread(line: dict[str, Any]) -> bool:
    """Whether this release cannot read what a line has, and so cannot load it."""
    kind = line["kind"]
    return kind == UNREADABLE or (kind == RULE and bool(rule_store.newer(line["plan"])))


def _say_how_it_stands(ctx: click.Context, first: dict[str, Any]) -> None:
    """Print warnings about the store, from the dump's first line."""
    if not first["paused"]:
        ctx.obj.error(_MOVING)
    if first["in_flight"]:
        ctx.obj.error(
            f"{counted(first['in_flight'])} being published: dumped as possibly delivered"
        )
    if first["owed"]:
        ctx.obj.error(
            f"REVOKED is not stored yet for {first['owed']}; this store's scanners do that, the "
            "dump does not have it"
        )


def _wrong_count(dumped: int, delayq: HasServices) -> str:
    """Return a warning if a paused store's counts differ from the dump; empty if they match.

    A dump reads the records; the counts come from the indexes that scanners read.
    """
    try:
        counts = reading.counts(delayq)
    except DelayQError as error:
        return f"could not compare the dump with the store's counts: {plain(error)}"
    kept = counts.scheduled + counts.paused + counts.in_flight + counts.dead
    if dumped == kept:
        return ""
    return (
        f"{counted(dumped)} dumped, but the store counts {kept} now: a process still schedules, "
        "cancels or publishes, or the store is inconsistent; run check"
    )


@click.command(
    cls=CeleryCommand, epilog=examples("load < tasks.jsonl", "load --dry-run < tasks.jsonl")
)
@click.option(
    "--skip-existing", is_flag=True, cls=CeleryOption, help_group="Loading",
    help="Skip tasks whose id or unique key another task in this store has.",
)  # fmt: skip
@click.option(
    "--paused", is_flag=True, cls=CeleryOption, help_group="Loading",
    help="Pause everything first, so that nothing is delivered until resume.",
)  # fmt: skip
@click.option(
    "--dry-run", is_flag=True, cls=CeleryOption, help_group="Loading",
    help="Only check the lines, not whether their ids and keys are taken.",
)  # fmt: skip
@click.pass_context
def load(ctx: click.Context, /, skip_existing: bool, paused: bool, dry_run: bool, **_: Any) -> None:
    """Load a dump from standard input.

    Each task is restored as it was, after the pauses. Loading the same tasks again adds nothing, so
    after an interruption you can run the same command again; if the store is not paused, as long as
    delayq_remember says. Exits with 1 if a task was not loaded.
    """
    if reads_terminal():
        raise click.UsageError("Pass a dump on standard input: load < FILE", ctx)
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
    """Print why some were not loaded, and clear the list; return how many they are."""
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
        ctx.obj.error(f"{counted(whole.left)} left out: delivered or cancelled here since")
    if whole.skipped:
        ctx.obj.error(f"{counted(whole.skipped)} left out: another task has the id or the key")


def reads_terminal() -> bool:
    """Whether standard input is a terminal, or missing."""
    return sys.stdin is None or sys.stdin.isatty()
