"""The command ``history``."""

from __future__ import annotations

import json
from typing import Any

import click
from celery.bin.base import CeleryCommand, CeleryOption

from ..logs import plain
from ..operations.history import Event
from .common import Said, aligned, delayq_of, json_option, short

_NO_HISTORY = "Nothing is kept: the setting delayq_history is 0."


@click.command(cls=CeleryCommand)
@click.option(
    "-n", "--limit", type=click.IntRange(0), default=100, show_default=True,
    cls=CeleryOption, help_group="Filter", help="At most so many.",
)  # fmt: skip
@json_option
@click.pass_context
def history(ctx: click.Context, /, limit: int, as_json: bool, **_: Any) -> None:
    """Show what happened last, the newest first."""
    delayq = delayq_of(ctx)
    with Said():
        events = delayq.history(limit)
        kept = delayq.services.settings.history
    if as_json:
        for event in events:
            ctx.obj.echo(json.dumps(_event_facts(event)))
        return
    head = ("WHEN (UTC)", "WHAT", "ID", "KEY", "QUEUE", "TASK")
    for line in aligned([head, *map(_event_row, events)]):
        ctx.obj.echo(line)
    if not kept:
        ctx.obj.secho(_NO_HISTORY, fg="yellow")


def _event_row(event: Event) -> tuple[str, ...]:
    texts = (event.what.value, event.id, event.key, event.queue, event.task)
    return (short(event.when), *map(plain, texts))


def _event_facts(event: Event) -> dict[str, Any]:
    return {
        "when": event.when.isoformat(),
        "what": event.what.value,
        "id": event.id,
        "key": event.key,
        "due": event.due and event.due.isoformat(),
        "task": event.task,
        "queue": event.queue,
    }
