"""The commands that show tasks: ``list`` and ``show``."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from datetime import datetime, tzinfo
from itertools import islice
from sys import maxsize
from typing import Any

import click

from ..clock import EPOCH
from ..logs import plain
from ..operations import filters, reading
from ..operations.scheduled_task import ScheduledTask
from ..store import Outcome, State
from .common import REFUSED, Argument, ErrorSentences, UsageErrors, delayq_of, examples, json_option
from .filter_options import named_in, picked, picks
from .looks import CeleryCommand, CeleryOption
from .screen import Line, Screen
from .tables import Column, table
from .task_facts import facts_of, json_of
from .zones import name_of, stamp, with_offset, zone_of, zoned

LIMIT = 100  # rows of a table, unless one asks for more
_STATES = {"dead": "red", "paused": "yellow", "in_flight": "cyan"}
_READ = {"args", "kwargs", "reason", "error"}  # that nobody copies, so they may be wrapped


@click.command(
    "list",
    cls=CeleryCommand,
    epilog=examples(
        "list --overdue",
        "list --before-due +1h --queue mail --local",
        "list --json | jq -r 'select(.args[0] == 42) | .id'",
        "list --ids --tag user:7 > ids.txt",
    ),
)
@picks("Filter")
@click.option(
    "-n", "--limit", type=click.IntRange(0), cls=CeleryOption, help_group="Filter",
    help=f"At most so many. By default {LIMIT}; with --json or --ids all.",
)  # fmt: skip
@click.option(
    "--cursor", cls=CeleryOption, help_group="Filter",
    help="Go on behind the task that has this cursor in --json.",
)  # fmt: skip
@zoned
@json_option
@click.option(
    "--ids", "only_ids", is_flag=True, cls=CeleryOption, help_group="Output",
    help="Print ids only, one on each line.",
)  # fmt: skip
@click.pass_context
def list_(ctx: click.Context, /, limit: int | None, **given: Any) -> None:
    """List waiting tasks in the order in which they are due.

    By tag, task, queue or state they come in the order in which they were scheduled, and those that
    are dead or being published are among them.
    """
    as_json, only_ids, cursor = (given.pop(name) for name in ("as_json", "only_ids", "cursor"))
    if as_json and only_ids:
        raise click.UsageError("--json and --ids exclude each other.", ctx)
    if limit is None and not (as_json or only_ids):
        limit = LIMIT
    with UsageErrors():
        listed = _Listed(ctx, named_in(given), picked(ctx, given), cursor, limit)
        if as_json:
            Screen(ctx).show([(json_of(task), "")] for task in listed)
        elif only_ids:
            _show_ids(ctx, listed)
        else:
            zone, screen = zone_of(ctx), Screen(ctx)
            rows = (_row(task, zone) for task in listed)
            screen.show(table(_columns(zone), rows))
        listed.say_more()


class _Listed:
    """Tasks that were picked, up to a limit; it can say how many there are beyond that.

    Args:
        ctx: The command's.
        by: The names of the options by which they are picked.
        picking: What ``select`` takes of these.
        cursor: Behind which task of an earlier list it begins, or ``None``.
        limit: How many are wanted at most, or ``None``.
    """

    def __init__(
        self,
        ctx: click.Context,
        by: set[str],
        picking: dict[str, Any],
        cursor: str | None,
        limit: int | None,
    ) -> None:
        self._ctx = ctx
        self._delayq = delayq_of(ctx)
        self._by, self._picking = by, picking
        self._is_whole = cursor is None
        # More than islice can count to is more than there can be.
        self._limit = None if limit is None else min(limit, maxsize - 1)
        self._is_cut = False
        self._tasks = self._read(cursor)

    def _read(self, cursor: str | None) -> Iterator[ScheduledTask]:
        times = {name: self._picking.get(name) for name in ("after_due", "before_due")}
        rest = {name: one for name, one in self._picking.items() if name not in times}
        if not rest:
            beyond = None if self._limit is None else self._limit + 1
            return reading.tasks(self._delayq, **times, limit=beyond, cursor=cursor)
        if rest == {"state": State.SCHEDULED.value}:
            # The order of due times has the paused as well.
            tasks = reading.tasks(self._delayq, **times, cursor=cursor)
            return (one for one in tasks if one.state is State.SCHEDULED)
        if cursor is not None:
            raise click.UsageError("--cursor is for a list in due order.", self._ctx)
        return iter(filters.select(self._delayq, **self._picking))

    def __iter__(self) -> Iterator[ScheduledTask]:
        yield from islice(self._tasks, self._limit)
        self._is_cut = next(self._tasks, None) is not None

    def say_more(self) -> None:
        """Say how many there are beyond the limit, where that was reached."""
        if self._is_cut:
            more = self._more()
            many = "there are more" if more is None else f"{more:,} more"
            self._ctx.obj.error(f"{many}; this list has {self._limit:,}, as --limit says")

    def _more(self) -> int | None:
        """How many more there are, where that costs little; else ``None``."""
        total = self._total() if self._is_whole else None
        more = 0 if total is None else total - (self._limit or 0)
        return more if more > 0 else None

    def _total(self) -> int | None:
        if self._by == {"tag"}:
            return filters.select(self._delayq, **self._picking).count()
        if self._by not in (set(), {"state"}, {"overdue"}):
            return None
        counts = reading.counts(self._delayq)
        if self._by == {"overdue"}:
            return counts.overdue
        totals = {
            None: counts.scheduled + counts.paused,
            State.SCHEDULED.value: counts.scheduled,
            State.PAUSED.value: counts.paused,
            State.IN_FLIGHT.value: counts.in_flight,
            State.DEAD.value: counts.dead,
        }
        return totals[self._picking.get("state")]


def _show_ids(ctx: click.Context, tasks: Iterable[ScheduledTask]) -> None:
    left_out = 0

    def lines() -> Iterator[Line]:
        nonlocal left_out
        for task in tasks:
            # What would be two lines, or moves a cursor, would name another task, or none.
            if task.id.isprintable():
                yield [(task.id, "")]
            else:
                left_out += 1

    Screen(ctx).show(lines())
    if left_out:
        raise click.ClickException(
            f"left out {left_out:,} ids with characters that no line can have; --json has them"
        )


def _columns(zone: tzinfo) -> tuple[Column, ...]:
    return (
        Column("ID"),
        Column(f"DUE ({name_of(zone)})"),
        Column("QUEUE"),
        Column("TASK"),
        Column("STATE", _STATES),
        Column("ERROR", {"": "red"}),
    )


def _row(task: ScheduledTask, zone: tzinfo) -> tuple[str, ...]:
    # Of what cannot be read, no time is known.
    time = "-" if task.created == EPOCH else stamp(task.due, zone)
    state = task.state.value.lower()
    if task.paused_by and task.state is State.SCHEDULED:
        state = f"{state}, {', '.join(task.paused_by)} paused"
    if task.next_try:
        state = f"{state}, next try {stamp(task.next_try, zone)}"
    return (
        plain(task.id), time, plain(task.queue), plain(task.task), plain(state), plain(task.error)
    )  # fmt: skip


@click.command(
    cls=CeleryCommand, epilog=examples("show order-42", "show order-42 --json | jq .args")
)
@click.argument("id", cls=Argument, help="The task's id.")
@zoned
@json_option
@click.pass_context
def show(ctx: click.Context, /, id: str, as_json: bool, **_: Any) -> None:
    """Show one scheduled task."""
    with ErrorSentences():
        delayq = delayq_of(ctx)
        task = reading.get(delayq, id)
        has_left = task is None and reading.handed_over(delayq, id) is not None
        zone = zone_of(ctx)
    if task is None:
        why = Outcome.HANDED_OVER if has_left else Outcome.NOT_FOUND
        raise click.ClickException(plain(REFUSED[why].format(id)))
    if as_json:
        ctx.obj.echo(json_of(task))
        return
    screen, facts = Screen(ctx), facts_of(task)
    width = max(map(len, facts))
    for name, value in facts.items():
        lines = [_text_of(value, zone)]
        if name in _READ and screen.width is not None:
            lines = textwrap.wrap(lines[0], max(20, screen.width - width - 1)) or lines
        screen.show([(f"{head:<{width}} ", "bold"), (line, "")] for head, line in
                    zip([name, *[""] * (len(lines) - 1)], lines, strict=True))  # fmt: skip


def _text_of(value: Any, zone: tzinfo) -> str:
    if isinstance(value, datetime):
        return with_offset(value, zone)
    return plain(", ".join(value) if isinstance(value, list) else value)
