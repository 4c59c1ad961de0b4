"""The command ``undo``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import datetime, tzinfo
from typing import Any

import click

from ...core.errors import DelayQError, StoreError
from ...core.services import HasServices
from ...core.text import counted, plain
from ...operations.cli.common import (
    STAMP,
    Argument,
    CeleryCommand,
    CeleryOption,
    ErrorSentences,
    UsageErrors,
    advised,
    delayq_of,
    examples,
    json_option,
    name_of,
    stamp,
    with_zone,
    zone_of,
    zoned,
)
from ...operations.cli.output import SHORT_ID, Column, Line, Room, Screen, table
from . import undoing
from .undoing import Undoable, Undone

_NO_UNDO = "Nothing is kept: the setting delayq_undo is 0."
_MOST_SHOWN = 5  # reasons why tasks of a bulk are not back


@click.command(
    cls=CeleryCommand, epilog=examples("undo", "undo order-42 --now", "undo --bulk 5f0c1d2e3a4b")
)
@click.argument("ids", metavar="[ID]...", nargs=-1, cls=Argument, help="Ids of cancelled tasks.")
@click.option(
    "--bulk", cls=CeleryOption, help_group="Tasks",
    help="All tasks of one cancel or move of many, by the name that it printed.",
)  # fmt: skip
@click.option(
    "--now", is_flag=True, cls=CeleryOption, help_group="Tasks",
    help="Run those now whose due time has come since.",
)  # fmt: skip
@zoned
@json_option
@click.pass_context
def undo(
    ctx: click.Context,
    /,
    ids: tuple[str, ...],
    bulk: str | None,
    now: bool,
    as_json: bool,
    **_: object,
) -> None:
    """Bring back cancelled tasks, and those that a change of many moved.

    A task comes back as it was, if no other one has its id or its unique key. A moved one gets its
    old due time, if nothing has changed it since. Without an id or --bulk, those that can come back
    are listed.
    """
    delayq = delayq_of(ctx, heard=bool(ids) or bulk is not None)
    if ids and bulk is not None:
        raise click.UsageError("Name tasks by id, or a --bulk, not both.", ctx)
    if bulk is not None:
        with UsageErrors():
            is_done = _told_of_many(ctx, undoing.undo_all(delayq, bulk, now=now))
    elif ids:
        answers = [_undo_one(ctx, delayq, task_id, now=now) for task_id in ids]
        is_done = all(answers)
    else:
        with ErrorSentences():
            _list(ctx, delayq, as_json=as_json)
        return
    if not is_done:
        ctx.exit(1)


def _undo_one(ctx: click.Context, delayq: HasServices, task_id: str, *, now: bool) -> bool:
    with ErrorSentences():
        try:
            due = undoing.undo(delayq, task_id, now=now)
        except StoreError:
            raise
        except DelayQError as error:
            ctx.obj.error(advised(error))
            return False
    ctx.obj.echo(plain(f"task {task_id} is back, due {with_zone(due, zone_of(ctx))}"))
    return True


def _told_of_many(ctx: click.Context, undone: Undone) -> bool:
    ctx.obj.echo(f"{counted(undone.done)} back")
    reasons = undone.reasons
    for reason in reasons[:_MOST_SHOWN]:
        ctx.obj.error(advised(reason))
    if len(reasons) > _MOST_SHOWN:
        ctx.obj.error(f"and {len(reasons) - _MOST_SHOWN} more are not back")
    return bool(undone)


def _list(ctx: click.Context, delayq: HasServices, *, as_json: bool) -> None:
    found = sorted(_cancels(undoing.undoable(delayq)), reverse=True)
    if as_json:
        for when, name, count, moved in found:
            which: dict[str, Any] = {"bulk": name, "count": count} if count else {"id": name}
            which |= {"moved": True} if moved else {}
            ctx.obj.echo(json.dumps({"when": when.isoformat(), **which}))
        return
    zone, screen = zone_of(ctx), Screen(ctx)
    screen.show(table_of(found, zone, screen.width))
    if not delayq.services.settings.undo:
        screen.show([[(_NO_UNDO, "yellow")]])


_Cancel = tuple[datetime, str, int, bool]


def table_of(cancels: list[_Cancel], zone: tzinfo, width: int | None) -> Iterator[Line]:
    """Return the lines of a table of cancels and moves, fitted to *width*; ``None``: any width."""
    what = Column("CANCELLED, MOVED", is_id=True)
    columns = [Column(f"WHEN ({name_of(zone)})"), what, Column("UNDO")]
    # The line to undo it is to be copied.
    room = None if width is None else Room(width, ((1, SHORT_ID), (0, STAMP), (1, 0)))
    if width is not None:
        cancels = [(each[0].replace(microsecond=0), *each[1:]) for each in cancels]
    return table(columns, (_row(*each, zone) for each in cancels), room)


def _cancels(tasks: Iterable[Undoable]) -> list[_Cancel]:
    """Return each change: its time; its bulk and how many are left, or an id and 0; if it moved."""
    bulks: dict[str, tuple[datetime, int, bool]] = {}
    single = []
    for task in tasks:
        if task.bulk:
            when, count, _ = bulks.get(task.bulk, (task.when, 0, False))
            bulks[task.bulk] = max(when, task.when), count + 1, task.moved
        else:
            single.append((task.when, task.id, 0, False))
    return single + [(when, name, count, moved) for name, (when, count, moved) in bulks.items()]


def _row(when: datetime, name: str, count: int, moved: bool, zone: tzinfo) -> tuple[str, ...]:
    what, line = (counted(count), f"undo --bulk {name}") if count else (name, f"undo {name}")
    what += ", moved" if moved else ""
    return stamp(when, zone), plain(what), plain(line)
