"""The commands that run a store: ``pause``, ``resume``, ``free``, ``health`` and ``scan``.

A pause or a resume of everything is a change of many: it needs ``--all``, and asks.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from datetime import datetime, tzinfo
from functools import wraps
from typing import Any, NamedTuple

import click

from ...core.errors import StoreError
from ...core.integration import startup
from ...core.leaves import SCAN, call
from ...core.servers.risks import NOTE, Line
from ...core.services import HasServices
from ...core.store import KeyHolder, Outcome, Pause, lane_in_words
from ...core.tasks import reading
from ...core.text import counted, plain
from .. import pauses
from ..health import MAX_DEAD, MAX_OVERDUE, MAX_PAUSED, Bounds, lines, restarts_here
from ..queues import unread
from .common import (
    Argument,
    CeleryCommand,
    CeleryOption,
    ErrorSentences,
    UsageErrors,
    advised,
    confirm,
    delayq_of,
    examples,
    json_option,
    relative,
    zone_of,
    zoned,
)
from .input import now_of, say_unknown

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
        """The arguments of :func:`pauses.pause` that name it."""
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
        pauses.pause(delayq, **lane.named, late=late)
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
            there = pauses.pauses(delayq)
            found = next((one for one in there if one.what == str(lane)), None)
            if found is None:
                raise click.ClickException(_not_paused(lane, there))
            if lane.dry_run:
                ctx.obj.echo(f"everything would be resumed: {found.parked_in_words} due")
                return
            confirm(f"resume everything: {found.parked_in_words} due?")
        if not pauses.resume(delayq, **lane.named, rate=rate):
            raise click.ClickException(_not_paused(lane, pauses.pauses(delayq)))
    ctx.obj.echo(plain(f"{lane} is resumed"))


def _not_paused(lane: _Lane, there: list[Pause]) -> str:
    """Return why there is nothing to resume; for everything, also the pauses that there are."""
    held = [found for found in there if not found.resumed]
    if not lane.named["all"]:
        return plain(f"{lane} is not paused")
    if not held:
        return "nothing is paused"
    paused = "; ".join(f"{found.what} ({pauses.to_resume(found)})" for found in held)
    return advised(f"there is no pause of everything; paused: {paused}")


_SAID_BY = {
    "delivery": ", as its delivery set it",
    "worker": ", as a worker's last word about its run set it",
    "": "",
}
NOBODY = "no task holds the key {!r}"
REFUSED = {
    Outcome.NOT_FOUND: f"{NOBODY} any more; nothing was changed",
    Outcome.UNCHANGED: "another task holds the key {!r} by now; nothing was changed",
    Outcome.IN_FLIGHT: "the key {!r} is held by a task that is being published this moment; "
    "try again shortly",
}


@click.command(cls=CeleryCommand, epilog=examples("free order-42", "free order-42 --yes"))
@click.argument("key", cls=Argument, help="The unique key.")
@click.option("--yes", is_flag=True, cls=CeleryOption, help="Do not ask for confirmation.")
@zoned
@click.pass_context
def free(ctx: click.Context, /, key: str, yes: bool, **_: Any) -> None:
    """Free a unique key that a delivered task still holds.

    It says which task holds the key, since when and until when, and asks. Free the key if you know
    that the task does not run any more: its worker was killed, or its message was purged. If it
    does run, it goes on, beside the next task with this key.
    """
    with UsageErrors():
        delayq = delayq_of(ctx)
        held = pauses.holder(delayq, key=key)
        if held is None:
            raise click.ClickException(plain(NOBODY.format(key)))
        sentence = plain(sentence_of(held, now_of(ctx), zone_of(ctx)))
        if held.state != "left":
            raise click.ClickException(sentence)
        ctx.obj.echo(sentence)
        if not yes:
            confirm("free it?")
        outcome = pauses.free(delayq, key=key, if_holder=held)
    if not outcome:
        raise click.ClickException(plain(REFUSED[outcome].format(key)))
    ctx.obj.echo(plain(f"key {key!r} is free"))


def sentence_of(held: KeyHolder, now: datetime, zone: tzinfo) -> str:
    """Return a sentence about the holder: since when, until when, and who says so."""
    task = f"task {held.id} holds the key {held.key!r}"
    if held.state == "waits":
        return f"{task}, and waits; cancel it to free the key"
    if held.state == "in_flight" or held.until is None:
        return f"{task}, and is being published this moment; try again shortly"
    if held.delivered is not None:
        task += f"; it was delivered {relative(held.delivered, now, zone)}"
    elif held.changed is not None:
        task += f"; it was scheduled or changed last {relative(held.changed, now, zone)}"
    until = f"until {relative(held.until, now, zone)} at the latest"
    return f"{task}, and holds it {until}{_SAID_BY[held.said_by]}"


_RESTARTED = "scanner {} was restarted {}, as its thread ended; the log of its process says why"
_BOUNDS = {"cls": CeleryOption, "help_group": "Bounds", "show_default": True}


@click.command(
    cls=CeleryCommand, epilog=examples("health", "health --max-overdue 300 --max-dead 10")
)
@click.option(
    "--max-overdue", type=click.FloatRange(0), default=MAX_OVERDUE, metavar="SECONDS", **_BOUNDS,
    help="How long a task may be overdue, or wait to resume after a pause.",
)  # fmt: skip
@click.option(
    "--max-dead", type=click.IntRange(0), default=MAX_DEAD, metavar="TASKS", **_BOUNDS,
    help="How many tasks may be dead, and how many refused.",
)  # fmt: skip
@click.option(
    "--max-paused", type=click.FloatRange(0), default=MAX_PAUSED, metavar="SECONDS", **_BOUNDS,
    help="How long a task may be due and paused.",
)  # fmt: skip
@click.option(
    "--here", is_flag=True, cls=CeleryOption, help_group="Bounds",
    help="Only check that a scanner on this host is alive, and tell how often it was restarted.",
)  # fmt: skip
@json_option
@click.pass_context
def health(ctx: click.Context, /, here: bool, as_json: bool, **given: Any) -> None:
    """Check that tasks are delivered in time, for a probe.

    It prints a sentence for each problem, and exits with 1 if there is one.

    Problems are: the scanners have another broker than this app or reach it on other hosts, or
    other processes use the store with different settings; the store began after one of its
    scanners, as its Redis was emptied meanwhile; no scanner is alive, or the store is being
    resharded; a task has been overdue for too long; too many tasks are refused; too many tasks are
    dead; waiting tasks differ from the rows of the last reconcile, or that ended early; the next
    run of a recurring rule cannot be made, or was not written in time; workers did not know a task,
    or could not read it; a task has been due and paused for too long, or resumed tasks are
    delivered so slowly that the last one waits too long; the store's Redis is full or nearly full,
    or deletes waiting tasks when it is full; the store cannot be read.

    So is a queue for which tasks wait, or to which they were delivered, if no worker listens to it;
    and a store with another prefix that has tasks for the app's queues, and no scanner. If tasks
    wait, workers have a second to answer; a silent one is not a problem.

    It names a pause at once, and counts it as a problem after --max-paused. A paused task is not
    overdue. It names recurring rules whose task no living worker knows.
    """
    delayq = delayq_of(ctx)
    with ErrorSentences():
        bounds = Bounds(given["max_overdue"], given["max_dead"], given["max_paused"])
        found = [*lines(delayq.services, bounds, here=here), *(() if here else _unread(delayq))]
        problems = [line.sentence for line in found if line.is_problem]
        notes = [line for line in found if line.level == NOTE]
        paused = [line.sentence for line in notes if line.name == "pauses"]
        others = [line.sentence for line in notes if line.name != "pauses"]
        restarts = restarts_here(delayq) if here and not problems else {}
    if as_json:
        facts = {"healthy": not problems, "problems": problems, "paused": paused}
        facts["notes"] = others
        ctx.obj.echo(json.dumps({**facts, "restarts": restarts} if here else facts))
    else:
        again = [_RESTARTED.format(host, counted(n, "time")) for host, n in restarts.items()]
        for line in [*problems, *paused, *others] or ["healthy", *again]:
            ctx.obj.echo(advised(line))
    if problems:
        ctx.exit(1)


def _unread(delayq: HasServices) -> list[Line]:
    try:
        return unread(delayq.services)
    except StoreError:
        return []  # the other problems include this one


_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL", "FATAL")


@click.command(cls=CeleryCommand, epilog=examples("scan --loglevel INFO"))
@click.option(
    "-l", "--loglevel", type=click.Choice(_LEVELS, case_sensitive=False), default="INFO",
    show_default=True,
    cls=CeleryOption, help_group="Scanner", help="Logging level.",
)  # fmt: skip
@click.pass_context
def scan(ctx: click.Context, /, loglevel: str, **_: Any) -> None:
    """Run one scanner, without a worker, until you stop it."""
    ctx.obj.app.log.setup(loglevel=loglevel)
    with ErrorSentences():
        delayq_of(ctx, heard=True).services.check()
        app = ctx.obj.app
        scanner = app.delayq.scanner()
        beside = [service for service in call(SCAN, app) if service is not None]
    # Block signals in all threads and wait for one: a handler could interrupt any statement.
    signals = {signal.SIGTERM, signal.SIGINT, signal.SIGQUIT}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    startup.start(scanner)
    for service in beside:
        service.start()
    signal.sigwait(signals)
    for service in beside:
        service.stop()
    scanner.stop()
