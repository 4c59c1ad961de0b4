"""``celery -A proj delayq …``: look at what is scheduled, change it, or run a scanner alone."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

import click
from celery.bin.base import CeleryCommand, CeleryOption, handle_preload_options

from . import registry
from .clock import from_ms
from .errors import DelayQError, InvalidDueTime
from .extension import DelayQ
from .scheduled import ScheduledTask
from .store import Outcome

_RELATIVE = re.compile(r"\+(\d+(?:\.\d+)?)([smhd]?)")
_UNIX_TIME = re.compile(r"\d+(?:\.\d+)?")
_UNITS = {"": "seconds", "s": "seconds", "m": "minutes", "h": "hours", "d": "days"}

_NO_SCANNER = "No scanner is alive: nothing will run until a worker of this app is started."

_REFUSED = {
    Outcome.HANDED_OVER: "task {} has been handed over to its queue already",
    Outcome.IN_FLIGHT: "task {} is being published this moment; try again shortly",
    Outcome.UNCERTAIN: "task {} was taken care of, but an earlier attempt may have delivered it",
    Outcome.NOT_FOUND: "task {} is not scheduled",
}


@click.group(name="delayq")
@click.pass_context
@handle_preload_options
def delayq(ctx: click.Context, /, **_: Any) -> None:
    """Look at scheduled tasks, cancel and move them."""


_json = click.option(
    "--json", "as_json", is_flag=True, cls=CeleryOption, help_group="Output", help="Print JSON."
)


@delayq.command(cls=CeleryCommand)
@_json
@click.pass_context
def status(ctx: click.Context, /, as_json: bool, **_: Any) -> None:
    """Show how many tasks wait, and how many scanners are alive."""
    with _Said():
        counts = _delayq(ctx).counts()
    due = None if counts.next_due_ms is None else from_ms(counts.next_due_ms)
    facts = {
        "scheduled": counts.scheduled,
        "in_flight": counts.in_flight,
        "dead": counts.dead,
        "scanners": counts.scanners,
        "next_due": due and due.isoformat(),
    }
    if as_json:
        ctx.obj.echo(json.dumps(facts))
        return
    for name, value in facts.items():
        ctx.obj.echo(f"{name.replace('_', ' '):<10} {'-' if value is None else value}")
    if not counts.scanners:
        ctx.obj.secho(_NO_SCANNER, fg="yellow")


@delayq.command("list", cls=CeleryCommand)
@click.option("--after", cls=CeleryOption, help_group="Filter", help="Due at this time or later.")
@click.option("--before", cls=CeleryOption, help_group="Filter", help="Due before this time.")
@click.option(
    "-n", "--limit", type=click.IntRange(0), default=100, show_default=True,
    cls=CeleryOption, help_group="Filter", help="At most so many.",
)  # fmt: skip
@_json
@click.pass_context
def list_(
    ctx: click.Context,
    /,
    after: str | None,
    before: str | None,
    limit: int,
    as_json: bool,
    **_: Any,
) -> None:
    """List waiting tasks in the order in which they are due."""
    with _Said():
        tasks = _delayq(ctx).tasks(after=_time(after), before=_time(before), limit=limit)
        if as_json:
            for task in tasks:
                ctx.obj.echo(json.dumps(_facts(task)))
            return
        rows = [
            (_plain(task.id), _short(task.due), _plain(task.queue), _plain(task.task))
            for task in tasks
        ]
    for line in _aligned([("ID", "DUE (UTC)", "QUEUE", "TASK"), *rows]):
        ctx.obj.echo(line)


@delayq.command(cls=CeleryCommand)
@click.argument("id")
@_json
@click.pass_context
def show(ctx: click.Context, /, id: str, as_json: bool, **_: Any) -> None:
    """Show one scheduled task."""
    with _Said():
        task = _delayq(ctx).get(id)
    if task is None:
        raise click.ClickException(_plain(_REFUSED[Outcome.NOT_FOUND].format(id)))
    facts = _facts(task)
    if as_json:
        ctx.obj.echo(json.dumps(facts))
        return
    for name, value in facts.items():
        ctx.obj.echo(f"{name:<8} {_plain(value)}")


@delayq.command(cls=CeleryCommand)
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@click.option(
    "--revoke", is_flag=True, cls=CeleryOption, help_group="Cancelling",
    help="Tell the workers to drop what has left already.",
)  # fmt: skip
@click.pass_context
def cancel(ctx: click.Context, /, ids: Sequence[str], revoke: bool, **_: Any) -> None:
    """Cancel scheduled tasks."""
    _report(ctx, "cancelled", ids, lambda one: _delayq(ctx).cancel(one, revoke=revoke))


@delayq.command(cls=CeleryCommand)
@click.argument("id")
@click.argument("when")
@click.pass_context
def reschedule(ctx: click.Context, /, id: str, when: str, **_: Any) -> None:
    """Move a scheduled task.

    WHEN is ISO 8601 text, Unix time in seconds, or from now: +90, +90s, +5m, +2h, +1d.
    """
    with _Said():
        relative = _RELATIVE.fullmatch(when)
        time = {"after": _span(relative)} if relative else {"at": _time(when)}
        _report(ctx, "rescheduled", [id], lambda one: _delayq(ctx).reschedule(one, **time))


@delayq.command(cls=CeleryCommand)
@click.option(
    "-l", "--loglevel", default="INFO", show_default=True,
    cls=CeleryOption, help_group="Scanner", help="Logging level.",
)  # fmt: skip
@click.pass_context
def scan(ctx: click.Context, /, loglevel: str, **_: Any) -> None:
    """Run one scanner, without a worker, until it is told to stop."""
    ctx.obj.app.log.setup(loglevel=loglevel)
    with _Said():
        _delayq(ctx).check()
        scanner = _delayq(ctx).scanner()
    # Blocked and waited for, in all threads: a handler would run in the midst of anything.
    signals = {signal.SIGTERM, signal.SIGINT, signal.SIGQUIT}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    scanner.start()
    signal.sigwait(signals)
    scanner.stop()


class _Said:
    """Say an error of this package in one sentence, with exit status 1."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, DelayQError):
            raise click.ClickException(_plain(error)) from error


def _delayq(ctx: click.Context) -> DelayQ:
    with _Said():
        return registry.of(ctx.obj.app)


def _report(
    ctx: click.Context, done: str, ids: Sequence[str], step: Callable[[str], Outcome]
) -> None:
    refused = 0
    for one in ids:
        try:
            outcome = step(one)
            said = f"task {one} {done}" if outcome else _REFUSED[outcome].format(one)
        except DelayQError as error:
            outcome, said = None, f"Error: {error}"
        if outcome:
            ctx.obj.echo(_plain(said))
        else:
            ctx.obj.error(_plain(said))
            refused += 1
    if refused:
        ctx.exit(1)


def _plain(text: object) -> str:
    """Text for one row of a terminal: what could move its cursor is shown by its escape."""
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape").decode() for one in str(text)
    )


def _time(text: str | None) -> Any:
    return float(text) if text and _UNIX_TIME.fullmatch(text) else text


def _span(relative: re.Match[str]) -> timedelta:
    number, unit = relative.groups()
    try:
        return timedelta(**{_UNITS[unit]: float(number)})
    except OverflowError:
        raise InvalidDueTime(relative.group(), "a shorter delay") from None


def _facts(task: ScheduledTask) -> dict[str, Any]:
    return {
        "id": task.id,
        "task": task.task,
        "args": None if task.args is None else repr(task.args),
        "kwargs": None if task.kwargs is None else repr(task.kwargs),
        "queue": task.queue,
        "due": task.due.isoformat(),
        "created": task.created.isoformat(),
        "state": task.state.value,
        **({"reason": task.reason} if task.reason else {}),
    }


def _short(time: datetime) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
