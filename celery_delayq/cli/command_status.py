"""The command ``status``: how the store stands, on one screen."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import tzinfo
from typing import Any

import click

from ..clock import from_ms
from ..logs import plain
from ..operations.status import QueueCounts, Status
from ..operations.status import status as status_now
from ..services import Services
from ..store import Pause
from .common import ErrorSentences, delayq_of, examples, json_option
from .looks import CeleryCommand
from .screen import Line, Screen
from .tables import Column, table
from .zones import with_offset, zone_of, zoned

SHOWN = 50  # queues; a screen has no room for more
NO_SCANNER = "No scanner is alive: nothing will run until a worker of this app is started."
OTHER_BROKER = (
    "The scanners have the broker {}, which is not this app's: what this app schedules goes there."
)
_FIRST_ONLY = "These are the {:,} that are due next, of {:,} that wait."
_MORE_QUEUES = "{:,} more queues are in --json."
_UNREADABLE = "(cannot be read)"
_UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))
_COLUMNS = (Column("QUEUE"), Column("WAITING"), Column("OVERDUE"))


@click.command(cls=CeleryCommand, epilog=examples("status", "status --json | jq .overdue"))
@zoned
@json_option
@click.pass_context
def status(ctx: click.Context, /, as_json: bool, **_: Any) -> None:
    """Show what waits, what is overdue or dead, and who scans.

    Queue by queue it counts the 10,000 tasks that are due next, the overdue ones first.
    """
    delayq = delayq_of(ctx)
    with ErrorSentences():
        found = status_now(delayq)
    if as_json:
        ctx.obj.echo(json.dumps(found.facts()))
        return
    screen, zone = Screen(ctx), zone_of(ctx)
    screen.show(_facts(found, delayq.services, zone))
    screen.show(_queues(found))
    for pause in found.pauses:
        ctx.obj.secho(plain(_pause(pause, zone)), fg="yellow")
    if found.other_broker is not None:
        ctx.obj.secho(plain(OTHER_BROKER.format(found.other_broker)), fg="yellow")
    if not found.scanners:
        ctx.obj.secho(NO_SCANNER, fg="yellow")


def _facts(found: Status, services: Services, zone: tzinfo) -> Iterator[Line]:
    counts = found.counts
    next_ms = counts.next_due_ms
    facts: dict[str, tuple[object, str]] = {
        "store": (found.store, ""),
        "prefix": (found.prefix, ""),
        "path": (path_in_words(services), ""),
        "waiting": (counts.scheduled, ""),
        "overdue": (counts.overdue, "yellow"),
        "oldest overdue": (_oldest(found, zone), "yellow"),
        "next due": ("-" if next_ms is None else with_offset(from_ms(next_ms), zone), ""),
        "refused": (counts.refused, "yellow"),
        "in flight": (counts.in_flight, ""),
        "paused": (counts.paused, "yellow"),
        "dead": (counts.dead, "red"),
        "scanners": (len(found.scanners), ""),
    }
    width = max(map(len, facts))
    for name, (value, style) in facts.items():
        yield [
            (f"{name:<{width}}  ", "bold"),
            (plain(value), style if value not in (0, "-") else ""),
        ]
    now = from_ms(counts.now_ms)
    for one in found.scanners:
        ago = (now - one.seen).total_seconds()
        yield [(f"  {plain(one.name)}, seen {max(0.0, ago):.1f} s ago", "")]


def path_in_words(services: Services) -> str:
    """How what is due reaches its queue."""
    if services.store_is_broker:
        return "direct: one step moves a task from the store to its queue"
    broker = services.broker
    return f"relay: tasks are published to the broker {broker.kind} on {broker.hosts}"


def _oldest(found: Status, zone: tzinfo) -> str:
    due_ms = found.counts.oldest_overdue_ms
    if due_ms is None:
        return "-"
    how_long = lasting((found.counts.now_ms - due_ms) / 1000)
    return f"{with_offset(from_ms(due_ms), zone)}, for {how_long}"


def lasting(seconds: float) -> str:
    """How long something lasts, in its two greatest units: ``2 h 5 min``."""
    left, words = max(0, round(seconds)), []
    for size, unit in _UNITS:
        count, left = divmod(left, size)
        if count:
            words.append(f"{count} {unit}")
    return " ".join(words[:2]) or "0 s"


def _queues(found: Status) -> Iterator[Line]:
    if not found.queues:
        return
    in_order = sorted(found.queues, key=lambda one: (-one.overdue, -one.waiting, one.queue))
    yield []
    yield from table(_COLUMNS, map(_row, in_order[:SHOWN]))
    if len(in_order) > SHOWN:
        yield [(_MORE_QUEUES.format(len(in_order) - SHOWN), "")]
    if not found.queues_complete:
        looked_at = sum(one.waiting for one in found.queues)
        yield [(_FIRST_ONLY.format(looked_at, found.counts.scheduled), "")]


def _pause(pause: Pause, zone: tzinfo) -> str:
    rate = "" if pause.rate is None else f" at {pause.rate:g} a second"
    since = f"is paused since {with_offset(pause.since.replace(microsecond=0), zone)}"
    state = f"comes back{rate}" if pause.resumed else since
    parked = f"; {pause.parked} due" if pause.parked else ""
    return f"{pause.what} {state}{parked}"


def _row(one: QueueCounts) -> Sequence[str]:
    return plain(one.queue) or _UNREADABLE, str(one.waiting), str(one.overdue)
