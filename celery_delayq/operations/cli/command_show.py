"""The command ``show``: one task, and why it has not run yet."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from datetime import datetime, tzinfo
from typing import Any

import click

from ...core.clock import from_ms
from ...core.store import Counts, Pause, State, lane_in_words
from ...core.tasks import reading
from ...core.tasks.scheduled_task import ScheduledTask, facts_of, line_of_json
from ...core.text import counted, lasting, plain
from .. import finding, freeing, pausing
from ..health import no_delivery
from .command_free import sentence_of
from .common import Argument, ErrorSentences, advised, delayq_of, examples, json_option
from .departed import HINT, Target, behind_which, why_gone
from .looks import CeleryCommand, CeleryOption
from .screen import Line, Screen, wrapped
from .when import now_of
from .zones import name_of, relative, stamp, zone_of, zoned

_READ = {"args", "kwargs", "reason", "error"}  # texts to read, not to copy: they may be wrapped
_MOST_EVENTS = 20  # of the task's history
_MOST_IDS = 20  # that it prints
_WAITS = (State.SCHEDULED, State.PAUSED)


@click.command(
    cls=CeleryCommand,
    epilog=examples("show order-42", "show --key sync:7", "show order-42 --json | jq .args"),
)
@click.argument(
    "id", cls=Argument, required=False, help="The task's id, or its first 6 characters or more."
)
@click.option("--key", cls=CeleryOption, help="The task with this unique key.")
@zoned
@json_option
@click.pass_context
def show(ctx: click.Context, /, id: str | None, key: str | None, as_json: bool, **_: Any) -> None:
    """Show one task, and what keeps it waiting.

    If the task has left the store, it says when, and whether the task was delivered to its queue,
    cancelled, or skipped because it was too late; and with --key, whether it still holds the key.
    """
    if (id is None) == (key is None):
        raise click.UsageError("Name one task, by its id or --key.", ctx)
    with ErrorSentences():
        delayq = delayq_of(ctx)
        task, zone = reading.get(delayq, id, key=key), zone_of(ctx)
        if task is None and id is not None:
            task = _begun_so(ctx, id)
        if task is None:
            ctx.obj.error(advised(_why_gone(ctx, id, key)))
            Screen(ctx).show(_past(ctx, id, zone))
            ctx.exit(1)
        if as_json:
            ctx.obj.echo(line_of_json(task.facts()))
            return
        counts, pauses = reading.counts(delayq), pausing.pauses(delayq)
    screen = Screen(ctx)
    screen.show(show_screen(task, counts, pauses, zone, screen.width))
    screen.show(_past(ctx, task.id, zone))


def _past(ctx: click.Context, task_id: str | None, zone: tzinfo) -> Iterator[Line]:
    """Yield a line for each event of a task, if a history is kept."""
    delayq: Any = delayq_of(ctx)
    if task_id is None or not delayq.services.settings.history or not hasattr(delayq, "history"):
        return
    with ErrorSentences():
        events = delayq.history(_MOST_EVENTS, of=task_id)
    for event in events:
        what = event.what.value.replace("_", " ")
        by = f" by {plain(event.actor)}" if event.actor else ""
        yield [(f"{stamp(event.when, zone)} {name_of(zone)}  {what}{by}", "")]


def _begun_so(ctx: click.Context, beginning: str) -> ScheduledTask | None:
    """Return the only task whose id begins so; if there are more, end with their ids."""
    delayq = delayq_of(ctx)
    if len(beginning) < finding.SHORTEST or reading.departure(delayq.services, beginning):
        return None
    found, place = set[str](), ""
    while len(found) <= _MOST_IDS:
        ids = finding.ids_with(delayq.services, beginning, seconds=1, place=place)
        found, place = found | {*ids.found}, ids.place
        if not place:
            break
    if len(found) > 1:
        ctx.obj.error(f"the ids of more than one task begin with {beginning!r}:")
        for each in sorted(found)[:_MOST_IDS]:
            ctx.obj.error(plain(each))
        ctx.exit(1)
    return reading.get(delayq, found.pop()) if found else None


def _why_gone(ctx: click.Context, task_id: str | None, key: str | None) -> str:
    delayq, zone = delayq_of(ctx), zone_of(ctx)
    held = None if key is None else freeing.holder(delayq, key=key)
    if held is not None:
        return sentence_of(held, now_of(ctx), zone)
    return why_gone(delayq, zone, Target(task_id, key), HINT)


def show_screen(
    task: ScheduledTask, counts: Counts, pauses: list[Pause], zone: tzinfo, width: int | None
) -> Iterator[Line]:
    """Return the lines of the screen, fitted to *width* columns; ``None``: any width."""
    yield from _lines(task, from_ms(counts.now_ms), zone, width)
    for note in _notes(task, counts, pauses, zone):
        for line in wrapped(f"! {advised(note)}", width, "  "):
            yield [(line, "yellow")]


def _lines(task: ScheduledTask, now: datetime, zone: tzinfo, room: int | None) -> Iterator[Line]:
    facts = facts_of(task)
    width = max(map(len, facts))
    for name, value in facts.items():
        lines = [_text_of(value, now, zone)]
        if name in _READ and room is not None:
            lines = textwrap.wrap(lines[0], max(20, room - width - 1)) or lines
        for head, line in zip([name, *[""] * (len(lines) - 1)], lines, strict=True):
            yield [(f"{head:<{width}} ", "bold"), (line, "")]


def _text_of(value: Any, now: datetime, zone: tzinfo) -> str:
    if isinstance(value, datetime):
        return relative(value, now, zone)
    return plain(", ".join(value) if isinstance(value, list) else value)


def _notes(task: ScheduledTask, counts: Counts, pauses: list[Pause], zone: tzinfo) -> Iterator[str]:
    """Yield the reasons why it still waits, one sentence each."""
    now = from_ms(counts.now_ms)
    if task.state not in _WAITS:
        return
    if task.behind:
        yield f"it {behind_which(task, now, zone)}"
    elif task.due <= now:
        yield f"it is overdue by {lasting((now - task.due).total_seconds())}"
    lanes = {lane_in_words(*lane) for lane in ((None, None), (task.queue, None), (None, task.task))}
    for pause in pauses:
        if pause.what in lanes and not pause.resumed:
            yield f"{pause.what} was paused {relative(pause.since, now, zone)}"
        elif pause.what in lanes and pause.rate is not None:
            left = counted(pause.parked)
            yield f"{pause.what} comes back at {pause.rate:g} a second, and {left} are left"
    if reason := no_delivery(counts):
        yield reason
