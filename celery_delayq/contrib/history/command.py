"""The command ``history``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import tzinfo
from typing import Any

import click

from ...core.store import What
from ...core.text import counted, plain
from ...operations.cli.common import (
    STAMP,
    CeleryCommand,
    CeleryOption,
    ErrorSentences,
    UsageErrors,
    delayq_of,
    examples,
    json_option,
    name_of,
    stamp,
    zone_of,
    zoned,
)
from ...operations.cli.output import SHORT_ID, Column, Line, Room, Screen, table
from .newest import Event
from .newest import history as newest

_WHEN, _ID, _KEY, _QUEUE, _TASK, _BY = 0, 2, 3, 4, 5, 6  # columns
_GONE = "{} of this change are not listed: the setting delayq_history keeps fewer."
_NO_HISTORY = "Nothing is kept: the setting delayq_history is 0."


@click.command(cls=CeleryCommand, epilog=examples("history -n 10", "history --json | jq .what"))
@click.option(
    "-n", "--limit", type=click.IntRange(0), default=100, show_default=True,
    cls=CeleryOption, help_group="Filter", help="Show at most this many.",
)  # fmt: skip
@click.option(
    "--id",
    "task_id",
    cls=CeleryOption,
    help_group="Filter",
    help="Only what happened to this task.",
)
@click.option(
    "--bulk",
    cls=CeleryOption,
    help_group="Filter",
    help="Only this change of many, and then its tasks.",
)
@click.option(
    "--task", cls=CeleryOption, help_group="Filter",
    help="Only events of tasks with this name, also those in changes of many.",
)  # fmt: skip
@click.option(
    "--by", cls=CeleryOption, help_group="Filter",
    help="Only what somebody did whose name has this text.",
)  # fmt: skip
@click.option(
    "--what", type=click.Choice([what.value for what in What]), metavar="KIND", cls=CeleryOption,
    help_group="Filter", help="Only events of this kind.",
)  # fmt: skip
@click.option(
    "--text", cls=CeleryOption, help_group="Filter",
    help="Only events of tasks whose id or key has this text.",
)  # fmt: skip
@click.option(
    "--cursor", cls=CeleryOption, help_group="Filter",
    help="Continue behind the event with this cursor in --json.",
)  # fmt: skip
@zoned
@json_option
@click.pass_context
def history(
    ctx: click.Context,
    /,
    limit: int,
    task_id: str | None,
    bulk: str | None,
    as_json: bool,
    *,
    task: str | None,
    by: str | None,
    what: str | None,
    text: str | None,
    cursor: str | None,
    **_: Any,
) -> None:
    """Show the last events, the newest first.

    A change of many tasks is one line; --bulk, with the name in it, lists its tasks.

    The store keeps hashes of the names of tasks and queues. TASK is empty if this app has no task
    with that hash, and none of the latest ones is in the store. QUEUE is empty if this app, its
    pauses and the tasks that are due next name no queue with that hash.
    """
    delayq = delayq_of(ctx)
    if task_id is not None and bulk is not None:
        raise click.UsageError("Name a task by --id, or a --bulk, not both.", ctx)
    with UsageErrors(), ErrorSentences():
        filters = {"task": task, "by": by, "what": what, "text": text, "cursor": cursor}
        events = newest(delayq, limit, of=task_id, bulk=bulk, **filters)
        kept = delayq.services.settings.history
    if as_json:
        for event in events:
            ctx.obj.echo(json.dumps(_event_facts(event)))
        return
    zone, screen = zone_of(ctx), Screen(ctx)
    screen.show(table_of(events, zone, screen.width))
    is_whole = bulk is not None and not any(filters.values()) and len(events) < limit
    if gone := _gone(events) if is_whole else 0:
        screen.show([[(_GONE.format(counted(gone)), "yellow")]])
    if not kept:
        screen.show([[(_NO_HISTORY, "yellow")]])


def table_of(events: list[Event], zone: tzinfo, width: int | None) -> Iterator[Line]:
    """Return the lines of a table of events, fitted to *width* columns; ``None``: any width."""
    rows = [_event_row(each, zone, is_short=width is not None) for each in events]
    # The name of a change of many is to be copied.
    ids = max([SHORT_ID, *(len(row[_ID]) for row in rows if "--bulk " in row[_ID])])
    gives = (
        (_KEY, 10), (_QUEUE, 8), (_TASK, 16), (_ID, ids), (_KEY, 0), (_QUEUE, 0), (_BY, 8),
        (_TASK, 8), (_WHEN, STAMP), (_TASK, 0), (_BY, 0),
    )  # fmt: skip
    return table(_columns(zone), rows, None if width is None else Room(width, gives))


def _gone(events: list[Event]) -> int:
    """Return of how many tasks of a change the event is no longer kept."""
    return sum(each.count for each in events if not each.id) - sum(1 for each in events if each.id)


def _columns(zone: tzinfo) -> tuple[Column, ...]:
    styles = {"dead": "red", "cancelled": "yellow", "skipped": "yellow"}
    return (
        Column(f"WHEN ({name_of(zone)})"),
        Column("WHAT", styles),
        Column("ID", is_id=True),
        *(Column(title) for title in ("KEY", "QUEUE", "TASK", "BY")),
    )


def _event_row(event: Event, zone: tzinfo, *, is_short: bool) -> tuple[str, ...]:
    when = event.when.replace(microsecond=0) if is_short else event.when
    what = event.what.value.replace("_", " ")
    named = event.id or (f"{counted(event.count)}: --bulk {event.bulk}" if event.count else "")
    texts = (what, named, event.key, event.queue, event.task, event.actor)
    return (stamp(when, zone), *map(plain, texts))


def _event_facts(event: Event) -> dict[str, Any]:
    return {
        "when": event.when.isoformat(),
        "what": event.what.value,
        "id": event.id,
        "key": event.key,
        "due": event.due and event.due.isoformat(),
        "task": event.task,
        "queue": event.queue,
        "actor": event.actor,
        "count": event.count,
        "bulk": event.bulk,
        "cursor": event.cursor,
    }
