"""What commands print: lines and tables, the progress of many tasks, sentences about a gone task.

A terminal gets each line at once, in colour if rich is installed and colours are not disabled. A
pipe or a file gets the same lines, plain and uncut, in batches. The first rows of a table set the
widths of its columns; the other rows follow as they are read:

    ID        DUE (UTC)            IN      TASK         ARGS   QUEUE  STATE
    order-42  2030-01-01 09:00:00  19 min  shop.remind  (42,)  mail   scheduled

On a terminal, a line that is too long is shortened column by column: texts are cut, with an
ellipsis, or columns left out.
"""

from __future__ import annotations

import os
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, tzinfo
from importlib.util import find_spec
from itertools import chain, islice
from typing import Any, NamedTuple, TextIO

import click

from ...core import clock
from ...core.clock import from_ms
from ...core.errors import DelayQError
from ...core.services import HasServices
from ...core.store import Departure
from ...core.tasks.reading import counts, departure, get
from ...core.tasks.scheduled_task import ScheduledTask
from .common import relative

_BATCH = 100  # lines

#: A line: its parts, each with a rich style, or an empty one.
Line = list[tuple[str, str]]


def text_of(line: Line) -> str:
    """Return a line without its styles."""
    return "".join([text for text, _ in line])


def wrapped(text: str, width: int | None, indent: str = "") -> list[str]:
    """Wrap a text for a terminal; words stay whole, so that you can copy them."""
    if width is None:
        return [text]
    return textwrap.wrap(
        text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def _console_of(ctx: click.Context, stream: TextIO) -> Any:
    """Return a rich console on a terminal; ``None`` for anything else, or without rich."""
    if not stream.isatty() or find_spec("rich") is None:
        return None
    from rich.console import Console

    # The text comes from other people: no markup, no emoji codes, no highlighting.
    return Console(
        file=stream, no_color=ctx.obj.no_color or None, markup=False, emoji=False, highlight=False
    )


class Screen:
    """Standard output at the start of the command.

    Attributes:
        width: Columns of the terminal; ``None`` if unknown, or if it is not a terminal.
    """

    def __init__(self, ctx: click.Context) -> None:
        self._obj = ctx.obj
        is_plain = ctx.obj.no_color or os.environ.get("NO_COLOR")
        self._console: Any = None if is_plain else _console_of(ctx, sys.stdout)
        self._is_terminal = sys.stdout.isatty()
        self.width = _columns(sys.stdout) if self._is_terminal else None

    def show(self, lines: Iterable[Line]) -> None:
        """Print lines as they arrive."""
        if not self._is_terminal:
            left = iter(lines)
            while some := [text_of(line) for line in islice(left, _BATCH)]:
                self._obj.echo("\n".join(some))
        elif self._console is None:
            for line in lines:
                self._obj.echo(text_of(line))
        else:
            self._colour(lines)

    def _colour(self, lines: Iterable[Line]) -> None:
        from rich.text import Text

        for line in lines:
            # A line longer than the terminal stays one line, so that you can copy it.
            self._console.print(Text.assemble(*line), soft_wrap=True)


def _columns(stream: TextIO) -> int | None:
    try:
        return os.get_terminal_size(stream.fileno()).columns or None
    except OSError:
        return None


FIRST = 100  # rows that set the column widths
_GAP = "  "
_CUT = "…"
SHORT_ID = len("order-…-00001")  # of an id that is cut
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_FIRST_PART = 8  # characters of a UUID, which `show` and the changes take as its id


@dataclass(frozen=True)
class Column:
    """A column.

    Attributes:
        title: Its heading.
        styles: Rich styles by the first word of a text; ``""`` is for all others.
        is_number: Whether its texts are right-aligned.
        is_id: Whether texts are ids. A UUID that is cut is its first part, which commands take;
            others are cut in the middle, as related ids often start alike.
    """

    title: str
    styles: Mapping[str, str] = field(default_factory=dict)
    is_number: bool = False
    is_id: bool = False

    def style_of(self, text: str) -> str:
        return self.styles.get(text.partition(",")[0]) or self.styles.get("", "")

    def fitted(self, text: str, width: int, *, cuts: bool) -> str:
        """Pad a text to the column's width; if it is wider, cut it only if *cuts*."""
        if cuts and len(text) > width >= _FIRST_PART and self.is_id and UUID.fullmatch(text):
            text = text[:_FIRST_PART]
        elif cuts and len(text) > width:
            tail = (width - 1) // 2 if self.is_id else 0
            text = f"{text[: width - 1 - tail]}{_CUT}{text[len(text) - tail :]}"
        return text.rjust(width) if self.is_number else text.ljust(width)


@dataclass(frozen=True)
class Room:
    """A terminal's width, and how to shorten wider lines.

    Attributes:
        width: The number of characters in a line.
        gives: Pairs, tried in order: the index of a column, and its minimum width; 0: leave the
            column out.
    """

    width: int
    gives: Sequence[tuple[int, int]]

    def widths(self, wanted: Sequence[int]) -> list[int]:
        """Return the widths of the columns; 0 for a column to leave out."""
        widths = list(wanted)
        for place, least in self.gives:
            over = sum(width + len(_GAP) for width in widths if width) - len(_GAP) - self.width
            if over > 0:
                widths[place] = min(widths[place], max(least, widths[place] - over) * (least > 0))
        return widths


def table(
    columns: Sequence[Column], rows: Iterable[Sequence[str]], room: Room | None = None
) -> Iterator[Line]:
    """Yield the lines of a table; it reads its rows, which are plain text, as you iterate."""
    rows = iter(rows)
    first = list(islice(rows, FIRST))
    titles = [column.title for column in columns]
    widths = [max(map(len, texts)) for texts in zip(titles, *first, strict=True)]
    if room is not None:
        widths = room.widths(widths)
    for row in chain([titles], first, rows):
        styles = [
            "bold" if row is titles else column.style_of(text)
            for column, text in zip(columns, row, strict=True)
        ]
        texts = [
            column.fitted(text, width, cuts=room is not None)
            for column, text, width in zip(columns, row, widths, strict=True)
        ]
        yield _line(texts, widths, styles)


def _line(texts: Sequence[str], widths: Sequence[int], styles: Sequence[str]) -> Line:
    whole = zip(texts, styles, widths, strict=True)
    shown = [(text, style) for text, style, width in whole if width]
    while len(shown) > 1 and not shown[-1][0].strip():
        shown.pop()
    last, style = shown.pop()
    return [*((text + _GAP, style) for text, style in shown), (last.rstrip(), style)]


_INTERRUPTED = 130  # the exit status, as in shells
PATIENCE = 0.5  # seconds before the progress is shown


@contextmanager
def counting(
    ctx: click.Context,
    label: str,
    sentence: Callable[[int], str],
    total: int | None = None,
    tell: Callable[[int], object] | None = None,
) -> Iterator[Callable[[int], None]]:
    """Count finished tasks; on Ctrl-C, print how many there are and exit with status 130.

    The step that Ctrl-C interrupts takes effect completely or not at all; it is not counted.

    Args:
        ctx: The command's context.
        label: The text before the number.
        sentence: Puts the number of finished tasks in words.
        total: The approximate total, if known.
        tell: Called with the number of finished tasks, without a terminal.
    """
    count = 0

    def taken(done: int) -> None:
        nonlocal count
        count = done
        if shown is not None:
            shown(done)

    try:
        with _progress_of(ctx, label, total) as progress:
            shown = progress or tell
            yield taken
    except KeyboardInterrupt:
        ctx.obj.error(f"interrupted: at least {sentence(count)}")
        ctx.exit(_INTERRUPTED)


@contextmanager
def _progress_of(
    ctx: click.Context, label: str, total: int | None
) -> Iterator[Callable[[int], None] | None]:
    console = _console_of(ctx, sys.stderr)
    if console is None:
        yield None
        return
    bar = _Bar(console, label, total)
    try:
        yield bar.tell
    finally:
        bar.close()


class _Bar:
    def __init__(self, console: Any, label: str, total: int | None) -> None:
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

        count = "{task.completed:,}" if total is None else "{task.completed:,} of {task.total:,}"
        bars = [SpinnerColumn()] if total is None else [BarColumn()]
        text = "{task.description}"
        self._progress = Progress(
            TextColumn(text), *bars, TextColumn(count), console=console, transient=True
        )
        self._task = self._progress.add_task(label, total=total)
        self._begun = clock.monotonic()
        self._is_shown = False

    def tell(self, done: int) -> None:
        self._progress.update(self._task, completed=done)
        if not self._is_shown and clock.monotonic() >= self._begun + PATIENCE:
            self._is_shown = True
            self._progress.start()

    def close(self) -> None:
        if self._is_shown:
            self._progress.stop()


_LEFT = {
    "handed_over": "task {} has been handed over to its queue already",
    "skipped": "task {} was skipped, as it was overdue by more than its grace period",
    "cancelled": "task {} has been cancelled already",
    "uncertain": "task {} has been cancelled already, but an earlier attempt may have delivered it",
}
_NOT_HERE = "task {} is not scheduled in {} (prefix {})"
HINT = (
    "; a task that was sent with an eta may be held by a worker: celery -A proj inspect scheduled "
    "lists it, celery -A proj delayq cancel ID --revoke drops it"
)


class Target(NamedTuple):
    """A task that was named by its id, or by its unique key."""

    task_id: str | None = None
    key: str | None = None

    def __str__(self) -> str:
        return self.task_id or self.key or ""


def behind_which(task: ScheduledTask, now: datetime, zone: tzinfo) -> str:
    """Return the words for a task that waits behind another one."""
    sentence = f"waits behind task {task.behind}, which holds its key"
    if task.behind_until is None:
        return sentence
    return f"{sentence} until {relative(task.behind_until, now, zone)} at the latest"


def why_behind(delayq: HasServices, zone: tzinfo, who: Target) -> str:
    """Return a sentence about a task that is due now, but waits behind another one."""
    task, now = get(delayq, who.task_id, key=who.key), from_ms(counts(delayq).now_ms)
    if task is None or not task.behind:  # meanwhile
        return f"task {who} is due now; it waited behind a task that held its key"
    return f"task {who} is due now, but {behind_which(task, now, zone)}"


def why_gone(delayq: HasServices, zone: tzinfo, who: Target, hint: str = "") -> str:
    """Return a sentence about a task that is not in the store.

    Args:
        delayq: The app's ``DelayQ``.
        zone: The time zone of times in the sentence.
        who: The task.
        hint: The text to append if nothing is known about the task.
    """
    left: Departure | None = None
    with suppress(DelayQError):
        left = departure(delayq.services, who.task_id, key=who.key)
    if left is None:
        services = delayq.services
        return _NOT_HERE.format(who, services.endpoint.url, services.settings.prefix) + hint
    when = from_ms(left.when_ms)
    return f"{_LEFT[left.how].format(who)}, {relative(when, from_ms(left.now_ms), zone)}"
