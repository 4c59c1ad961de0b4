"""The command ``status``: how the store stands, on one screen."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import click
from celery.bin.base import CeleryCommand

from ..clock import from_ms
from ..logs import plain
from ..operations.status import Status
from ..services import Services
from .common import Said, aligned, delayq_of, json_option, short
from .pausing import line_of

NO_SCANNER = "No scanner is alive: nothing will run until a worker of this app is started."
_MORE = "These are the first of what waits, in due order: more waits than was looked at."
_UNREADABLE = "(cannot be read)"
_UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


@click.command(cls=CeleryCommand)
@json_option
@click.pass_context
def status(ctx: click.Context, /, as_json: bool, **_: Any) -> None:
    """Show what waits, what is overdue or dead, and who scans.

    Queue by queue it counts the 10,000 tasks that are due next, the overdue ones first.
    """
    delayq = delayq_of(ctx)
    with Said():
        found = delayq.status()
    if as_json:
        ctx.obj.echo(json.dumps(found.facts()))
        return
    for line in (*_facts(found, delayq.services), *_scanners(found), *_queues(found)):
        ctx.obj.echo(line)
    for pause in found.pauses:
        ctx.obj.secho(plain(line_of(pause)), fg="yellow")
    if not found.scanners:
        ctx.obj.secho(NO_SCANNER, fg="yellow")


def _facts(found: Status, services: Services) -> Iterator[str]:
    counts = found.counts
    facts = {
        "store": found.store,
        "prefix": found.prefix,
        "path": path_in_words(services),
        "waiting": counts.scheduled,
        "overdue": counts.overdue,
        "oldest overdue": _oldest(found),
        "next due": "-" if counts.next_due_ms is None else short(from_ms(counts.next_due_ms)),
        "refused": counts.refused,
        "in flight": counts.in_flight,
        "paused": counts.paused,
        "dead": counts.dead,
        "scanners": counts.scanners,
    }
    width = max(map(len, facts))
    return (f"{name:<{width}}  {plain(fact)}" for name, fact in facts.items())


def path_in_words(services: Services) -> str:
    """How what is due reaches its queue."""
    if services.store_is_broker:
        return "direct: one step moves a task from the store to its queue"
    broker = services.broker
    return f"relay: tasks are published to the broker {broker.kind} on {broker.hosts}"


def _oldest(found: Status) -> str:
    due_ms = found.counts.oldest_overdue_ms
    if due_ms is None:
        return "-"
    return f"{short(from_ms(due_ms))}, for {lasting((found.counts.now_ms - due_ms) / 1000)}"


def lasting(seconds: float) -> str:
    """How long something lasts, in its two greatest units: ``2 h 5 min``."""
    left, words = max(0, round(seconds)), []
    for size, unit in _UNITS:
        count, left = divmod(left, size)
        if count:
            words.append(f"{count} {unit}")
    return " ".join(words[:2]) or "0 s"


def _scanners(found: Status) -> Iterator[str]:
    now = from_ms(found.counts.now_ms)
    for one in found.scanners:
        ago = (now - one.seen).total_seconds()
        yield f"  {plain(one.name)}, seen {max(0.0, ago):.1f} s ago"


def _queues(found: Status) -> Iterator[str]:
    if not found.queues:
        return
    head = ("QUEUE", "WAITING", "OVERDUE")
    rows = [
        (plain(one.queue) or _UNREADABLE, str(one.waiting), str(one.overdue))
        for one in found.queues
    ]
    yield ""
    yield from aligned([head, *rows])
    if not found.queues_complete:
        yield _MORE
