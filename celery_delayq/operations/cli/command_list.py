"""The command ``list``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import datetime, tzinfo
from itertools import chain, islice
from sys import maxsize

import click

from ...core.clock import EPOCH
from ...core.store import State
from ...core.tasks import reading
from ...core.tasks.reading import Picks, in_due_order
from ...core.tasks.scheduled_task import ScheduledTask, line_of_json
from ...core.tasks.selection import Selection
from ...core.text import lasting, plain
from .common import UsageErrors, delayq_of, examples, json_option
from .filter_options import Filters, picks
from .looks import CeleryCommand, CeleryOption
from .screen import Line, Screen
from .tables import Column, Room, table
from .unknown import say_unknown
from .when import now_of
from .zones import name_of, soon, stamp, until, zone_of, zoned

LIMIT = 100  # rows of a table, unless --limit says otherwise
_WAITING = (State.SCHEDULED, State.PAUSED)
_STATES = {"dead": "red", "paused": "yellow", "in_flight": "cyan"}


@click.command(
    "list",
    cls=CeleryCommand,
    epilog=examples(
        "list --overdue",
        "list --due-before +1h --queue mail --local",
        "list --json | jq -r 'select(.args[0] == 42) | .id'",
        "list --ids --tag user:7 > ids.txt",
    ),
)
@picks("Filter")
@click.option(
    "--text", cls=CeleryOption, help_group="Filter",
    help="With this text in its arguments, as the list shows them. It looks at each task.",
)  # fmt: skip
@click.option(
    "-n", "--limit", type=click.IntRange(0), cls=CeleryOption, help_group="Filter",
    help=f"The most tasks to list. By default {LIMIT}; with --json or --ids all.",
)  # fmt: skip
@click.option(
    "--cursor", cls=CeleryOption, help_group="Filter",
    help="Continue after the task with this cursor in --json.",
)  # fmt: skip
@click.option(
    "--newest-first", is_flag=True, cls=CeleryOption, help_group="Output",
    help="Begin with the latest due time.",
)  # fmt: skip
@zoned
@json_option
@click.option(
    "--ids", "only_ids", is_flag=True, cls=CeleryOption, help_group="Output",
    help="Print ids only, one on each line.",
)  # fmt: skip
@click.pass_context
def list_(
    ctx: click.Context,
    /,
    *,
    filters: Filters,
    text: str | None,
    limit: int | None,
    cursor: str | None,
    newest_first: bool,
    as_json: bool,
    only_ids: bool,
) -> None:
    """List waiting tasks in the order in which they are due.

    With --dead, or a --state other than scheduled, the list has the order in which tasks were
    scheduled.
    """
    if as_json and only_ids:
        raise click.UsageError("--json and --ids exclude each other.", ctx)
    if limit is None and not (as_json or only_ids):
        limit = LIMIT
    with UsageErrors():
        listed = _Listed(ctx, filters, cursor, limit, newest_first=newest_first, text=text)
        if as_json:
            Screen(ctx).show([(line_of_json(task.facts()), "")] for task in listed)
        elif only_ids:
            _show_ids(ctx, listed)
        else:
            _show_table(ctx, listed)
        listed.say_more()
        listed.say_none(is_table=not (as_json or only_ids))


def _show_table(ctx: click.Context, listed: Iterable[ScheduledTask]) -> None:
    tasks = iter(listed)
    first = next(tasks, None)
    if first is not None:
        screen = Screen(ctx)
        screen.show(rows_of(chain([first], tasks), now_of(ctx), zone_of(ctx), screen.width))


class _Listed:
    """The selected tasks, up to a limit; it can say how many more there are.

    Args:
        ctx: The command's context.
        filters: The filter options.
        cursor: Where a list in due order continues, or ``None``.
        limit: The maximum number of tasks, or ``None``.
        newest_first: Whether a list in due order begins with the latest due time.
        text: What the arguments must have, or ``None``.
    """

    def __init__(
        self,
        ctx: click.Context,
        filters: Filters,
        cursor: str | None,
        limit: int | None,
        *,
        newest_first: bool,
        text: str | None,
    ) -> None:
        self._ctx = ctx
        self._delayq = delayq_of(ctx)
        self._filters, self._by = filters, filters.named
        self._picks = replace(filters.picked(ctx), cursor=cursor)
        self._newest_first = newest_first
        # islice cannot count further than maxsize, and no store holds that many.
        self._limit = None if limit is None else min(limit, maxsize - 1)
        # Of tasks without the text, the limit says nothing.
        self._most = None if self._limit is None or text is not None else self._limit + 1
        self._is_cut = self._is_any = False
        self._tasks = self._read()
        if text is not None:
            self._by.add("text")
            self._tasks = (each for each in self._tasks if text.lower() in _arguments(each).lower())

    def _read(self) -> Iterator[ScheduledTask]:
        states = self._picks.state
        if states is None:
            return self._in_due_order(self._most)
        if set(states) == {State.SCHEDULED.value}:
            # The list in due order includes paused tasks.
            tasks = self._in_due_order(None)
            return (task for task in tasks if task.state is State.SCHEDULED)
        for option, value in (
            ("--cursor", self._picks.cursor),
            ("--newest-first", self._newest_first),
        ):
            if value:
                raise click.UsageError(f"{option} is for a list in due order.", self._ctx)
        picks = replace(self._picks, cursor=None)
        return iter(Selection(self._delayq.services, picks))

    def _in_due_order(self, limit: int | None) -> Iterator[ScheduledTask]:
        picks = replace(self._picks, state=None, limit=limit)
        return in_due_order(self._delayq.services, picks, newest_first=self._newest_first)

    def __iter__(self) -> Iterator[ScheduledTask]:
        for task in islice(self._tasks, self._limit):
            self._is_any = True
            yield task
        self._is_cut = next(self._tasks, None) is not None

    def say_more(self) -> None:
        """If the limit was reached, say how many more there are."""
        if self._is_cut:
            more = self._more()
            many = "there are more" if more is None else f"{more:,} more"
            self._ctx.obj.error(f"{many}; --limit ends this list at {self._limit:,}")

    def say_none(self, *, is_table: bool) -> None:
        """If there are none, say so, unless in a pipe; and note a name that the app lacks."""
        if self._is_any or self._is_cut:
            return
        if is_table:
            services = self._delayq.services
            where = f"{services.endpoint.url} (prefix {services.settings.prefix})"
            which = "no such task waits" if self._by else "no task waits"
            self._ctx.obj.error(f"{which} in {where}")
        filters = self._filters
        say_unknown(self._ctx, queue=filters.queue, task=filters.task, tag=filters.tag)

    def _more(self) -> int | None:
        """Return how many more there are; ``None`` if counting them takes a scan."""
        total = self._total() if self._picks.cursor is None else None
        more = 0 if total is None else total - (self._limit or 0)
        return more if more > 0 else None

    def _total(self) -> int | None:
        if self._by == {"tag"}:
            return self._count(replace(self._picks, state=_WAITING))
        if self._by not in (set(), {"state"}, {"overdue"}):
            return None
        counts, states = reading.counts(self._delayq), {*(self._picks.state or _WAITING)}
        if not counts.is_exact and states == {State.PAUSED.value}:
            return self._count(self._picks)
        if not counts.is_exact and self._by:
            return None
        if self._by == {"overdue"}:
            return counts.overdue
        totals = {
            State.SCHEDULED: counts.scheduled,
            State.PAUSED: counts.paused,
            State.IN_FLIGHT: counts.in_flight,
            State.DEAD: counts.dead,
        }
        return sum(totals[State(state)] for state in states)

    def _count(self, picks: Picks) -> int:
        return Selection(self._delayq.services, picks).count()


def _show_ids(ctx: click.Context, tasks: Iterable[ScheduledTask]) -> None:
    left_out = 0

    def lines() -> Iterator[Line]:
        nonlocal left_out
        for task in tasks:
            # An id with a line break or a control character would be read back as another id.
            if task.id.isprintable():
                yield [(task.id, "")]
            else:
                left_out += 1

    Screen(ctx).show(lines())
    if left_out:
        raise click.ClickException(
            f"left out {left_out:,} ids with unprintable characters; --json has them"
        )


# The order in which columns of a row that is too wide shrink; ids late, as people copy them.
_ID, _DUE, _TASK, _ARGS, _QUEUE, _STATE = 0, 1, 3, 4, 5, 6
_LIST_GIVES = (
    (_ARGS, 12), (_STATE, 24), (_DUE, 0), (_TASK, 16), (_QUEUE, 8), (_ARGS, 6), (_ID, 13),
    (_STATE, 9), (_TASK, 9), (_ARGS, 0),
)  # fmt: skip


def rows_of(
    tasks: Iterable[ScheduledTask], now: datetime, zone: tzinfo, width: int | None
) -> Iterator[Line]:
    """Return the lines of a list, fitted to *width* columns; ``None``: any width."""
    # The times of an unreadable task are unknown.
    columns: tuple[tuple[Column, Callable[[ScheduledTask], str]], ...] = (
        (Column("ID", is_id=True), lambda task: task.id),
        (
            Column(f"DUE ({name_of(zone)})"),
            lambda task: "-" if task.created == EPOCH else stamp(task.due, zone),
        ),
        (
            Column("IN", {"": "cyan"}, is_number=True),
            lambda task: "-" if task.created == EPOCH else until(task.due, now),
        ),
        (Column("TASK"), lambda task: task.task),
        (Column("ARGS"), _arguments),
        (Column("QUEUE"), lambda task: task.queue),
        (Column("STATE", _STATES), lambda task: _state(task, now)),
    )
    room = None if width is None else Room(width, _LIST_GIVES)
    rows = ([plain(text_of(task)) for _, text_of in columns] for task in tasks)
    return table([column for column, _ in columns], rows, room)


def _arguments(task: ScheduledTask) -> str:
    """Return the arguments as logs show them; hidden ones stay hidden, and a canvas has none."""
    if task.is_canvas:
        return ""
    texts = (task.argsrepr, task.kwargsrepr)
    return " ".join(text for text in texts if text and text not in ("()", "{}"))


def _state(task: ScheduledTask, now: datetime) -> str:
    state = task.state.value.lower()
    if task.paused_by and task.state is State.SCHEDULED:
        state = f"{state}, {', '.join(task.paused_by)} paused"
    if task.behind:
        state = f"{state}, behind {task.behind}"
    if task.behind_until:
        left = lasting(max(0.0, (task.behind_until - now).total_seconds()))
        state = f"{state} for at most {left}"
    if task.next_try:
        state = f"{state}, next try {soon(task.next_try, now)}"
    return f"{state}, {task.error}" if task.error else state
