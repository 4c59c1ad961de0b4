"""The commands that show tasks: ``list`` and ``show``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import click
from celery.bin.base import CeleryCommand, CeleryOption

from ..clock import EPOCH
from ..logs import plain
from ..operations.task import ScheduledTask
from ..store import Outcome, State
from .common import REFUSED, Said, aligned, delayq_of, json_option, short, time_of

_HEAD = ("ID", "DUE (UTC)", "QUEUE", "TASK")
_PICKING = ("tag", "task", "queue", "state")


def _filter(*names: str, **given: Any) -> Any:
    return click.option(*names, cls=CeleryOption, help_group="Filter", **given)


@click.command("list", cls=CeleryCommand)
@_filter("--after-due", help="Due at this time or later.")
@_filter("--before-due", help="Due before this time.")
@_filter("--tag", help="With this tag.")
@_filter("--task", help="Of the task of this name.")
@_filter("--queue", help="Sent with this queue.")
@_filter(
    "--state",
    type=click.Choice([one.value.lower() for one in State], case_sensitive=False),
    help="In this state.",
)
@_filter("--dead", "state", flag_value="dead", help="The same as --state dead.")
@_filter(
    "-n", "--limit", type=click.IntRange(0), default=100, show_default=True, help="At most so many."
)
@_filter("--cursor", help="Go on behind the task that has this cursor in --json.")
@json_option
@click.pass_context
def list_(ctx: click.Context, /, limit: int, as_json: bool, **given: Any) -> None:
    """List waiting tasks in the order in which they are due.

    By tag, task, queue or state they come in the order in which they were scheduled, and those that
    are dead or being published are among them.
    """
    with Said():
        tasks = _tasks(ctx, limit, given)
        if as_json:
            for task in tasks:
                ctx.obj.echo(json.dumps({**facts_of(task), "cursor": task.cursor}))
            return
        listed = list(tasks)
    for line in aligned(_table(listed)):
        ctx.obj.echo(line)


def _tasks(ctx: click.Context, limit: int, given: dict[str, Any]) -> Iterator[ScheduledTask]:
    times = {name: time_of(given[name]) for name in ("after_due", "before_due")}
    picking = {name: given[name] for name in _PICKING if given[name]}
    cursor = given["cursor"]
    if not picking:
        return delayq_of(ctx).tasks(**times, limit=limit, cursor=cursor)
    if cursor:
        raise click.UsageError("--cursor is for a list in due order.", ctx)
    return islice(delayq_of(ctx).select(**times, **picking), limit)


def _table(tasks: Sequence[ScheduledTask]) -> list[tuple[str, ...]]:
    rows = [
        (plain(one.id), _due(one), plain(one.queue), plain(one.task), _state(one), plain(one.error))
        for one in tasks
    ]
    head = (*_HEAD, "STATE", "ERROR")
    # The last two, where there is something that they tell.
    if all(one.state is State.SCHEDULED and not one.error for one in tasks):
        return [row[: len(_HEAD)] for row in (head, *rows)]
    return [head, *rows]


def _due(task: ScheduledTask) -> str:
    # Of what cannot be read, no time is known.
    return "-" if task.created == EPOCH else short(task.due)


def _state(task: ScheduledTask) -> str:
    state = task.state.value.lower()
    return f"{state}, next try {short(task.next_try)}" if task.next_try else state


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
    facts = facts_of(task)
    if as_json:
        ctx.obj.echo(json.dumps(facts))
        return
    width = max(map(len, facts))
    for name, value in facts.items():
        ctx.obj.echo(f"{name:<{width}} {plain(', '.join(value) if name == 'tags' else value)}")


def facts_of(task: ScheduledTask) -> dict[str, Any]:
    """What is told of a task; what few have, where it has that."""
    facts = {
        "id": task.id,
        "task": task.task,
        "args": task.argsrepr,
        "kwargs": task.kwargsrepr,
        "queue": task.queue,
        "due": task.due.isoformat(),
        "created": task.created.isoformat(),
        "changed": task.changed.isoformat(),
        "revision": task.revision,
        "host": task.host,
        "state": task.state.value,
    }
    more = {
        "key": task.key,
        "tags": list(task.tags),
        "reason": task.reason,
        "error": "" if task.reason else task.error,
        "attempts": task.attempts,
        "next_try": task.next_try and task.next_try.isoformat(),
        "dead_since": task.dead_since and task.dead_since.isoformat(),
    }
    return {**facts, **{name: value for name, value in more.items() if value}}
