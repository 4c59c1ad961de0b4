"""The commands that show what is in the store: ``list``, ``show`` of one, ``keys``, ``status``.

A ``list`` has the tasks in due order; ``show`` says why its task has not run yet; ``keys`` has the
keys that delivered tasks hold; ``status`` is the state of the store on one screen, urgent problems
first:

    delayq  redis://localhost:6379/0  prefix delayq  direct
      ! no scanner is alive: no tasks are delivered; start a worker, or: celery -A proj delayq scan
    waiting 10,007   overdue 1 (21 s)   paused 2   dead 0   next in 4 s   scanners 0
    QUEUE   WAITING  OVERDUE  STATE
    celery    9,997        1
    mail         10        0  paused 2 min ago (2030-01-31 09:00:00 UTC)
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, tzinfo
from itertools import chain, islice
from math import inf
from sys import maxsize
from typing import Any

import click

from ...core.clock import EPOCH, from_ms
from ...core.services import Services
from ...core.store import Counts, KeyHolder, Pause, State, lane_in_words
from ...core.tasks import reading
from ...core.tasks.reading import UNKNOWN, Picks, in_due_order
from ...core.tasks.scheduled_task import ScheduledTask, facts_of, line_of_json
from ...core.tasks.selection import Selection
from ...core.text import counted, lasting, plain
from .. import finding, pauses
from ..health import beginning, no_delivery
from ..status import NOT_EXACT, QueueCounts, Status
from ..status import status as status_now
from .common import (
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
    relative,
    soon,
    stamp,
    until,
    zone_of,
    zoned,
)
from .input import Filters, now_of, picks, say_unknown
from .operate import sentence_of
from .output import (
    HINT,
    SHORT_ID,
    Column,
    Line,
    Room,
    Screen,
    Target,
    behind_which,
    table,
    text_of,
    why_gone,
    wrapped,
)

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
        totals: dict[str, int] = {
            State.SCHEDULED: counts.scheduled,
            State.PAUSED: counts.paused,
            State.IN_FLIGHT: counts.in_flight,
            State.DEAD: counts.dead,
            UNKNOWN: counts.unknown,
        }
        return sum(totals[state] for state in states)

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
    (_ARGS, 12), (_STATE, 24), (_DUE, 0), (_TASK, 16), (_QUEUE, 8), (_ARGS, 6), (_ID, SHORT_ID),
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


_READ = {"args", "kwargs", "reason", "error"}  # texts to read, not to copy: they may be wrapped
_MOST_EVENTS = 20  # of the task's history


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
        counts, there = reading.counts(delayq), pauses.pauses(delayq)
    screen = Screen(ctx)
    screen.show(show_screen(task, counts, there, zone, screen.width))
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


@click.command("keys", cls=CeleryCommand, epilog=examples("keys", "keys cart: --json | jq .id"))
@click.argument("begins", cls=Argument, metavar="[KEY]", default="", help="How the keys begin.")
@click.option(
    "-n", "--limit", type=click.IntRange(1), default=LIMIT, show_default=True, cls=CeleryOption,
    help_group="Filter", help="Show at most this many.",
)  # fmt: skip
@zoned
@json_option
@click.pass_context
def keys_(ctx: click.Context, /, begins: str, limit: int, as_json: bool, **_: Any) -> None:
    """List the unique keys that delivered tasks still hold.

    A key that another task waits for is listed too, even if its holder waits itself. `free` frees
    one.
    """
    with UsageErrors(), ErrorSentences():
        services = delayq_of(ctx).services
        found = pauses.held_keys(services, begins, most=limit, seconds=inf)
    if as_json:
        Screen(ctx).show([(line_of_json(_holder_facts(one)), "")] for one in found.found)
        return
    zone, screen = zone_of(ctx), Screen(ctx)
    titles = ("KEY", "TASK", f"SINCE ({name_of(zone)})", "UNTIL", "BEHIND IT", "DUE")
    screen.show(table([*map(Column, titles)], (_holder_row(one, zone) for one in found.found)))
    if found.place:
        ctx.obj.error(f"there are more; --limit ends this list at {limit:,}")


def _holder_row(one: KeyHolder, zone: tzinfo) -> list[str]:
    times = [at and stamp(at, zone) for at in (one.delivered, one.until, one.behind_due)]
    since, end, due = (text or "-" for text in times)
    until_ = end if one.state == "left" else one.state.replace("_", " ")
    return [plain(one.key), plain(one.id), since, until_, plain(one.behind or "-"), due]


def _holder_facts(one: KeyHolder) -> dict[str, Any]:
    return {
        "key": one.key,
        "id": one.id,
        "state": one.state,
        "since": one.delivered,
        "until": one.until,
        "until_finished": one.until_finished,
        "behind": one.behind,
        "behind_due": one.behind_due,
    }


def _begun_so(ctx: click.Context, beginning: str) -> ScheduledTask | None:
    """Return the only task whose id begins so; if there are more, end with their ids."""
    delayq = delayq_of(ctx)
    if len(beginning) < finding.SHORTEST or reading.departure(delayq.services, beginning):
        return None
    found = finding.ids_from(delayq, beginning)
    if len(found) > 1:
        ctx.obj.error(f"the ids of more than one task begin with {beginning!r}:")
        for each in found:
            ctx.obj.error(plain(each))
        ctx.exit(1)
    return reading.get(delayq, found[0]) if found else None


def _why_gone(ctx: click.Context, task_id: str | None, key: str | None) -> str:
    delayq, zone = delayq_of(ctx), zone_of(ctx)
    held = None if key is None else pauses.holder(delayq, key=key)
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
    if task.state not in _WAITING:
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
    if wrong := no_delivery(counts):
        yield wrong.sentence


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
    screen, path = Screen(ctx), _path_in_words(found, delayq.services)
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


def _path_in_words(found: Status, services: Services) -> str:
    """Return how due tasks reach their queues."""
    if found.path == "direct":
        return "direct"
    return f"relay to {services.broker.kind} on {services.broker.hosts}"


def _urgent(found: Status, now: datetime, zone: tzinfo) -> Iterator[str]:
    if wrong := no_delivery(found.counts):
        yield wrong.sentence
    if (line := beginning(found.counts)).is_problem:
        yield line.sentence
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
    states = {
        pause.queue: _paused(pause, now, zone) for pause in found.pauses if pause.queue is not None
    }
    in_order = sorted(
        found.queues, key=lambda counts: (-counts.overdue, -counts.waiting, counts.queue)
    )
    rows = (_queue_row(counts, states.get(counts.queue, "")) for counts in in_order[:SHOWN])
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
