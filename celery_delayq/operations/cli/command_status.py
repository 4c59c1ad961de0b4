"""The command ``status``: the state of the store on one screen, urgent problems first.

delayq  redis://localhost:6379/0  prefix delayq  direct
  ! no scanner is alive: no tasks are delivered; start a worker, or: celery -A proj delayq scan
waiting 10,007   overdue 1 (21 s)   paused 2   dead 0   next in 4 s   scanners 0
QUEUE   WAITING  OVERDUE  STATE
celery    9,997        1
mail         10        0  paused 2 min ago (2030-01-31 09:00:00 UTC)
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import datetime, tzinfo
from typing import Any

import click

from ...core.clock import from_ms
from ...core.services import Services
from ...core.store import Pause
from ...core.text import lasting, plain
from ..health import beginning, no_delivery
from ..status import NOT_EXACT, QueueCounts, Status
from ..status import status as status_now
from .common import ErrorSentences, advised, delayq_of, examples, json_option
from .looks import CeleryCommand
from .screen import Line, Screen, text_of, wrapped
from .tables import Column, Room, table
from .zones import relative, soon, zone_of, zoned

SHOWN = 50  # queues that fit on a screen
OTHER_BROKER = (
    "the scanners have the broker {}, and this app has another one, or other hosts of it; give "
    "each app a delayq_prefix of its own, or both the same broker_url"
)
_FIRST_ONLY = "These are the {:,} that are due next, of {:,} that wait."
_MORE_QUEUES = "{:,} more queues are in --json."
_UNREADABLE = "(cannot be read)"
_COLUMNS = (
    Column("QUEUE"),
    Column("WAITING", is_number=True),
    Column("OVERDUE", is_number=True),
    Column("STATE", {"": "yellow"}),
)
_QUEUES_GIVE = ((3, 24), (0, 12), (3, 8))  # the order in which columns of a wide row shrink
_GAP = "   "


@click.command(cls=CeleryCommand, epilog=examples("status", "status --json | jq .overdue"))
@zoned
@json_option
@click.pass_context
def status(ctx: click.Context, /, as_json: bool, **_: Any) -> None:
    """Show waiting, overdue and dead tasks, and the scanners.

    The table of queues counts the next 10,000 tasks in due order, overdue ones first.
    """
    delayq = delayq_of(ctx)
    with ErrorSentences():
        found = status_now(delayq)
    if as_json:
        ctx.obj.echo(json.dumps(found.facts()))
        return
    screen, path = Screen(ctx), path_in_words(found, delayq.services)
    screen.show(status_screen(found, path, zone_of(ctx), screen.width))


def status_screen(found: Status, path: str, zone: tzinfo, width: int | None) -> Iterator[Line]:
    """Return the lines of the screen, fitted to *width* columns; ``None``: any width."""
    yield [
        ("delayq", "bold"),
        (f"  {plain(found.store)}  prefix {plain(found.prefix)}  {path}", ""),
    ]
    now = from_ms(found.counts.now_ms)
    for text in _urgent(found, now, zone):
        for line in wrapped(f"  ! {advised(text)}", width, "    "):
            yield [(line, "yellow")]
    yield from _lines_of(_counts(found, now), width)
    yield from _queues(found, now, zone, width)


def path_in_words(found: Status, services: Services) -> str:
    """Return how due tasks reach their queues."""
    if found.path == "direct":
        return "direct"
    return f"relay to {services.broker.kind} on {services.broker.hosts}"


def _urgent(found: Status, now: datetime, zone: tzinfo) -> Iterator[str]:
    if reason := no_delivery(found.counts):
        yield reason
    if reason := beginning(found.counts).wrong:
        yield reason
    if not found.counts.is_exact:
        yield NOT_EXACT.format(paused=found.counts.paused, overdue=found.counts.overdue)
    if found.other_broker is not None:
        yield OTHER_BROKER.format(found.other_broker)
    for pause in found.pauses:
        # A queue's pause is in the table of queues, if tasks wait for that queue.
        if pause.queue is None or not any(queue.queue == pause.queue for queue in found.queues):
            yield f"{pause.what} {_paused(pause, now, zone)}"


def _counts(found: Status, now: datetime) -> Line:
    """Return the counts to show, with their styles."""
    counts = found.counts
    since_ms, next_ms = counts.oldest_overdue_ms, counts.next_due_ms
    late = "" if since_ms is None else f" ({lasting((counts.now_ms - since_ms) / 1000)})"
    parts = [
        (f"waiting {counts.scheduled:,}", ""),
        (f"overdue {counts.overdue:,}{late}", "yellow" * (counts.overdue > 0)),
        (f"paused {counts.paused:,}", "yellow" * (counts.paused > 0)),
        (f"dead {counts.dead:,}", "red" * (counts.dead > 0)),
    ]
    if counts.refused:
        parts.insert(2, (f"refused {counts.refused:,}", "red"))
    if counts.in_flight:
        parts.append((f"in flight {counts.in_flight:,}", ""))
    if next_ms is not None and next_ms > counts.now_ms:
        parts.append((f"next {soon(from_ms(next_ms), now)}", ""))
    hosts = ", ".join(sorted({plain(scanner.host) for scanner in found.scanners}))
    parts.append((f"scanners {len(found.scanners)}" + f" on {hosts}" * bool(hosts), ""))
    return parts


def _lines_of(parts: Line, width: int | None) -> Iterator[Line]:
    """Join parts with gaps into as many lines as they need."""
    line: Line = []
    for text, style in parts:
        length = len(text_of(line)) + len(_GAP) + len(text)
        if line and width is not None and length > width:
            yield line
            line = []
        line = [*line, (_GAP * bool(line), ""), (text, style)]
    yield line


def _queues(found: Status, now: datetime, zone: tzinfo, width: int | None) -> Iterator[Line]:
    if not found.queues:
        return
    pauses = {
        pause.queue: _paused(pause, now, zone) for pause in found.pauses if pause.queue is not None
    }
    in_order = sorted(
        found.queues, key=lambda counts: (-counts.overdue, -counts.waiting, counts.queue)
    )
    rows = (_queue_row(counts, pauses.get(counts.queue, "")) for counts in in_order[:SHOWN])
    yield from table(_COLUMNS, rows, None if width is None else Room(width, _QUEUES_GIVE))
    if len(in_order) > SHOWN:
        yield [(_MORE_QUEUES.format(len(in_order) - SHOWN), "")]
    if not found.queues_complete:
        looked_at = sum(queue.waiting for queue in found.queues)
        yield [(_FIRST_ONLY.format(looked_at, found.counts.scheduled), "")]


def _queue_row(counts: QueueCounts, state: str) -> Sequence[str]:
    return (
        plain(counts.queue) or _UNREADABLE,
        f"{counts.waiting:,}",
        f"{counts.overdue:,}",
        plain(state),
    )


def _paused(pause: Pause, now: datetime, zone: tzinfo) -> str:
    """Return the state of a pause: in force, or resuming."""
    parked = f", {pause.parked_in_words} due" if pause.parked else ""
    if not pause.resumed:
        return f"paused {relative(pause.since.replace(microsecond=0), now, zone)}{parked}"
    rate = "" if pause.rate is None else f" at {pause.rate:g} a second"
    return f"comes back{rate}{parked}"
