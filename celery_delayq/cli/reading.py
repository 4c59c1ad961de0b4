"""The commands that read: ``status``, ``list`` and ``show``."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import datetime
from typing import Any

import click
from celery.bin.base import CeleryCommand, CeleryOption

from ..clock import from_ms
from ..logs import plain
from ..operations.task import ScheduledTask
from ..store import Outcome, Pause
from .common import REFUSED, Said, aligned, delayq_of, json_option, time_of
from .pausing import line_of

_NO_SCANNER = "No scanner is alive: nothing will run until a worker of this app is started."


@click.command(cls=CeleryCommand)
@json_option
@click.pass_context
def status(ctx: click.Context, /, as_json: bool, **_: Any) -> None:
    """Show how many tasks wait, and how many scanners are alive."""
    with Said():
        counts, pauses = delayq_of(ctx).counts(), delayq_of(ctx).pauses()
    due = None if counts.next_due_ms is None else from_ms(counts.next_due_ms)
    facts = {
        "scheduled": counts.scheduled,
        "overdue": counts.overdue,
        "refused": counts.refused,
        "paused": counts.paused,
        "in_flight": counts.in_flight,
        "dead": counts.dead,
        "scanners": counts.scanners,
        "next_due": due and due.isoformat(),
    }
    if as_json:
        ctx.obj.echo(json.dumps({**facts, "pauses": [_pause_facts(one) for one in pauses]}))
        return
    for name, value in facts.items():
        ctx.obj.echo(f"{name.replace('_', ' '):<10} {'-' if value is None else value}")
    for pause in pauses:
        ctx.obj.secho(plain(line_of(pause)), fg="yellow")
    if not counts.scanners:
        ctx.obj.secho(_NO_SCANNER, fg="yellow")


@click.command("list", cls=CeleryCommand)
@click.option(
    "--after-due", cls=CeleryOption, help_group="Filter", help="Due at this time or later."
)
@click.option("--before-due", cls=CeleryOption, help_group="Filter", help="Due before this time.")
@click.option(
    "-n", "--limit", type=click.IntRange(0), default=100, show_default=True,
    cls=CeleryOption, help_group="Filter", help="At most so many.",
)  # fmt: skip
@json_option
@click.pass_context
def list_(
    ctx: click.Context,
    /,
    after_due: str | None,
    before_due: str | None,
    limit: int,
    as_json: bool,
    **_: Any,
) -> None:
    """List waiting tasks in the order in which they are due."""
    with Said():
        tasks = delayq_of(ctx).tasks(
            after_due=time_of(after_due), before_due=time_of(before_due), limit=limit
        )
        if as_json:
            for task in tasks:
                ctx.obj.echo(json.dumps(_facts(task)))
            return
        rows = [
            (plain(task.id), _short(task.due), plain(task.queue), plain(task.task))
            for task in tasks
        ]
    for line in aligned([("ID", "DUE (UTC)", "QUEUE", "TASK"), *rows]):
        ctx.obj.echo(line)


@click.command(cls=CeleryCommand)
@click.argument("id")
@json_option
@click.pass_context
def show(ctx: click.Context, /, id: str, as_json: bool, **_: Any) -> None:
    """Show one scheduled task."""
    with Said():
        task = delayq_of(ctx).get(id)
    if task is None:
        raise click.ClickException(plain(REFUSED[Outcome.NOT_FOUND].format(id)))
    facts = _facts(task)
    if as_json:
        ctx.obj.echo(json.dumps(facts))
        return
    for name, value in facts.items():
        ctx.obj.echo(f"{name:<8} {plain(value)}")


def _facts(task: ScheduledTask) -> dict[str, Any]:
    return {
        "id": task.id,
        "task": task.task,
        "args": task.argsrepr,
        "kwargs": task.kwargsrepr,
        "queue": task.queue,
        "due": task.due.isoformat(),
        "created": task.created.isoformat(),
        "state": task.state.value,
        **({"reason": task.reason} if task.reason else {}),
        **({"error": task.error} if task.error and not task.reason else {}),
        **({"attempts": task.attempts} if task.attempts else {}),
        **({"next_try": task.next_try.isoformat()} if task.next_try else {}),
        **({"dead_since": task.dead_since.isoformat()} if task.dead_since else {}),
    }


def _pause_facts(pause: Pause) -> dict[str, Any]:
    return {**asdict(pause), "since": pause.since.isoformat()}


def _short(time: datetime) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
