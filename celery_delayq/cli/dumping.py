"""The commands by which a store moves, or is kept: ``dump`` and ``load``."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import click

from ..errors import DelayQError
from ..integration.delayq import DelayQ
from ..logs import plain
from ..operations.dumping import wait_for_leases
from ..operations.lines import DUMP, END, UNREADABLE, text_of
from ..operations.loading import Loaded
from ..operations.loading import steps as load_steps
from ..services import Services
from .common import Said, delayq_of, examples
from .looks import CeleryCommand, CeleryOption
from .progress import counting
from .screen import Line, Screen
from .selecting import counted

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
    with Said():
        left = wait_for_leases(delayq.services, wait) if wait else 0
        if left:
            raise click.ClickException(f"{counted(left)} still being published; nothing was dumped")
        unreadable, wrong = 0, ""
        told = _told(ctx, delayq.dump())

        def lines() -> Iterator[Line]:
            nonlocal unreadable, wrong
            paused = False
            for line in told:
                unreadable += line["kind"] == UNREADABLE
                paused = paused or line.get("paused", False)
                yield [(text_of(line), "")]
                if line["kind"] == END and paused:
                    wrong = _wrong_count(line["tasks"] + line["unreadable"], delayq)

        Screen(ctx).show(lines())
    if wrong:
        ctx.obj.error(wrong)
    if unreadable:
        ctx.obj.error(f"{counted(unreadable)} cannot be read, and dumped as stored; see check")


def _wrong_count(dumped: int, delayq: DelayQ) -> str:
    """What there is to say where a paused store does not hold what was dumped; nothing if it does.

    A dump reads the records, and the counts are those of the indexes that scanners look at.
    """
    try:
        counts = delayq.counts()
    except DelayQError as error:
        return f"whether the store counts {counted(dumped)} could not be asked: {plain(error)}"
    kept = counts.scheduled + counts.paused + counts.in_flight + counts.dead
    if dumped == kept:
        return ""
    return (
        f"{counted(dumped)} dumped, and the store counts {kept} now: something still schedules, "
        "cancels or publishes, or check finds what does not fit"
    )


def _told(ctx: click.Context, lines: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The lines; what there is to say of the store is said beside them."""
    for line in lines:
        if line["kind"] == DUMP:
            if not line["paused"]:
                ctx.obj.error(_MOVING)
            if line["in_flight"]:
                ctx.obj.error(
                    f"{counted(line['in_flight'])} being published: dumped as what may have been "
                    "delivered"
                )
            if line["owed"]:
                ctx.obj.error(
                    f"REVOKED is still to be stored for {line['owed']}; scanners of this store do "
                    "that, it is in no dump"
                )
        yield line


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
    loading = _Loading(ctx, "can be read" if dry_run else "loaded")
    options = {"skip_existing": skip_existing, "paused": paused, "dry_run": dry_run}
    with Said():
        loading.take(delayq_of(ctx).services, options)
    is_whole = loading.tell()
    if dry_run:
        ctx.obj.error(_NOT_ASKED)
    if not is_whole:
        ctx.exit(1)


def reads_terminal() -> bool:
    """Whether somebody would have to type a dump, or there is no standard input at all."""
    return sys.stdin is None or sys.stdin.isatty()


class _Loading:
    """What a dump's tasks become, slice by slice, and what there is to say of it.

    Args:
        ctx: The command's.
        done: What is said of those that it keeps.
    """

    def __init__(self, ctx: click.Context, done: str) -> None:
        self._ctx = ctx
        self._done = done
        self._count = Loaded()
        self._failed = 0

    def take(self, services: Services, options: dict[str, bool]) -> None:
        """Load what standard input has."""
        services.entries.look()
        with counting(self._ctx, "load", self._told) as taken:
            try:
                moving = partial(self._warn, _LEAVING)
                for part in load_steps(services, sys.stdin.buffer, moving, **options):
                    self._add(part)
                    taken(self._count.loaded)
            except DelayQError:
                self._warn(f"{counted(self._count.loaded)} {self._done} so far")
                raise

    def _told(self, count: int) -> str:
        return f"{counted(count)} {self._done}; {_AGAIN}"

    def _add(self, part: Loaded) -> None:
        """Count what became of some; why others were not loaded is said at once, and forgotten."""
        for error in part.refused:
            self._warn(plain(error))
        for task_id, why in part.unreadable:
            self._warn(f"task {plain(task_id)} was dumped as unreadable: {plain(why)}")
        self._failed += len(part.refused) + len(part.unreadable)
        part.refused, part.unreadable = [], []
        self._count.add(part)

    def tell(self) -> bool:
        """Say what came of it; whether that is all that was wanted."""
        count = self._count
        self._ctx.obj.echo(f"{counted(count.loaded)} {self._done}")
        if count.here:
            self._ctx.obj.echo(f"{counted(count.here)} here already")
        if count.left:
            self._warn(f"{counted(count.left)} left out: handed over or cancelled here since")
        if count.skipped:
            self._warn(f"{counted(count.skipped)} left out: another has the id or the key")
        if self._failed:
            self._warn(f"{counted(self._failed)} not loaded")
        return not self._failed

    def _warn(self, line: str) -> None:
        self._ctx.obj.error(line)
