"""What people type: times (WHEN in the help), ids from standard input, and filters.

options --> Filters, as typed --> Picks, whose times are instants --> RewritableSelection

``operations/typed_times.py`` reads times. A queue or a task that the app does not know may be
misspelt: then a note says so.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from datetime import datetime
from functools import partial, wraps
from io import TextIOWrapper
from itertools import pairwise, takewhile
from typing import Any, TypeVar

import click

from ...core import clock
from ...core.clock import from_ms
from ...core.services import HasServices
from ...core.store import State
from ...core.tasks import reading
from ...core.tasks.reading import STATES, Picks
from ...core.tasks.selection import Selection
from ...core.text import plain
from .. import finding
from ..typed_times import (
    FILTERS,
    Ends,
    GivenSpan,
    GivenTime,
    TypedTimeError,
    first_forms,
    is_day,
    overlap,
    read,
    read_span,
    span_of,
)
from .common import CeleryOption, ErrorSentences, delayq_of, zone_of

_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_LONGEST_DAY = 3  # words: 26 Nov 2026
_QUOTE = "a time is one word; put it into quotes: '{}'"
_NOW = "celery_delayq.now"  # in a context's meta


class TimeParam(click.ParamType):  # type: ignore[type-arg]
    """Parses a time.

    Args:
        ago: Whether to accept ``-10m``.
        due: Whether to accept ``by:+30m``.
        never: Whether to accept ``never``.
        days: Whether to accept a day without a time of day.
    """

    name = "when"

    def __init__(
        self, *, ago: bool = False, due: bool = False, never: bool = False, days: bool = False
    ) -> None:
        self.read: Callable[[str], Any] = partial(read, ago=ago, due=due, never=never, days=days)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Parse *value*; if it is not a time, raise a usage error with examples."""
        if not isinstance(value, str):
            return value
        try:
            return self.read(value)
        except TypedTimeError as error:
            self.fail(str(error), param, ctx)


class SpanParam(TimeParam):
    """Parses a span of due times."""

    name = "span"

    def __init__(self) -> None:
        self.read = read_span


def moment_of(ctx: click.Context, given: GivenTime) -> datetime | float:
    """Return the instant of a time that is not ``by`` a task's own; a usage error if it has two."""
    try:
        return given.moment(partial(now_of, ctx), partial(zone_of, ctx))
    except TypedTimeError as error:
        raise click.UsageError(str(error), ctx) from None


def _ends_of(ctx: click.Context, given: GivenSpan) -> Ends:
    try:
        return given.ends(partial(now_of, ctx), partial(zone_of, ctx))
    except TypedTimeError as error:
        raise click.UsageError(str(error), ctx) from None


def times_of(ctx: click.Context, given: GivenTime) -> dict[str, Any]:
    """Return the argument of ``reschedule`` that was given: ``at``, ``after`` or ``by``."""
    if given.kind in ("after", "by"):
        return {given.kind: given.value}
    return {"at": moment_of(ctx, given)}


def earlier(option: str, words: Sequence[str]) -> str | None:
    """Return what to type instead of -5m, if that was parsed as the unknown *option*."""
    spans = (word for word in words if word.startswith(option) and _is_read(span_of, word[1:]))
    word = next(spans, None)
    return word and f"{word} is not an option; to move a task to an earlier time, type by:{word}"


def unquoted(words: Sequence[str], given: GivenTime) -> str | None:
    """Return what to type if the last *words* before a time of day are its day."""
    if given.kind != "day":
        return None
    days = (" ".join(words[-count:]) for count in range(1, min(len(words), _LONGEST_DAY) + 1))
    day = next(filter(is_day, days), None)
    return day and _QUOTE.format(f"{day} {given.value.text}")


def misplaced(words: Sequence[str]) -> str | None:
    """Return what to type if a time is among *words*, but not the last one."""
    if "in" in words:
        span = " ".join(takewhile(lambda word: word[:2] != "--", words[words.index("in") :]))
        if _is_read(read, span):
            return _QUOTE.format(span)
    for before, word in pairwise(["", *words]):
        # Skip values of options, and numbers, which may be ids.
        is_own = not before.startswith("--") and not _NUMBER.fullmatch(word)
        if is_own and _is_read(partial(read, due=True), word):
            return f"the time comes last, after the ids: {word}"
    return None


def _is_read(read: Callable[[str], object], text: str) -> bool:
    try:
        read(text)
    except (ValueError, OverflowError):
        return False
    return True


def now_of(ctx: click.Context) -> datetime:
    """Return the time by Redis's clock, read once per command."""
    if _NOW not in ctx.meta:
        with ErrorSentences():
            ctx.meta[_NOW] = from_ms(delayq_of(ctx).services.entries.counts().now_ms)
    now: datetime = ctx.meta[_NOW]
    return now


STDIN = "-"
_LONGEST = 4096  # characters of a line; an id has at most 512 bytes


def ids_read() -> Iterator[str]:
    """Yield the ids, read line by line as you iterate; skip empty lines.

    Raises:
        ClickException: a line is too long to be an id.
    """
    if isinstance(sys.stdin, TextIOWrapper):
        # Invalid UTF-8 is never a task's id.
        sys.stdin.reconfigure(encoding="utf-8", errors="replace")
    number = 0
    while line := sys.stdin.readline(_LONGEST):
        number += 1
        if len(line) == _LONGEST and not line.endswith("\n"):
            raise click.ClickException(f"line {number:,} of standard input is too long for an id")
        if task_id := line.rstrip("\r\n"):
            yield task_id


MOST = 10_000  # tasks in the store; with more, it does not search them for a name


def say_unknown(
    ctx: click.Context,
    *,
    queue: Iterable[str] = (),
    task: Iterable[str] = (),
    tag: Iterable[str] = (),
) -> None:
    """Print a note to standard error for each name that this app does not know.

    It ignores any error, as the command itself has already run.
    """
    delayq, app = delayq_of(ctx), ctx.obj.app
    with suppress(Exception):
        for name in queue:
            if name not in app.amqp.queues and _is_alone(delayq, Picks(queue=name, limit=1)):
                said = f"this app knows no queue {name!r}, and nothing waits for it"
                ctx.obj.error(f"{said}{_meant(delayq, 'queue', name)}")
        for name in task:
            app.loader.import_default_modules()  # as a worker does
            if name not in app.tasks and _is_alone(delayq, Picks(task=name, limit=1)):
                said = f"this app knows no task {name!r}, and none waits"
                ctx.obj.error(f"{said}{_meant(delayq, 'task', name)}")
        for name in tag:
            if meant := _meant(delayq, "tag", name):
                ctx.obj.error(f"no task has the tag {name!r}{meant}")


def _meant(delayq: HasServices, kind: str, name: str) -> str:
    names = finding.suggested(delayq, kind, name)
    return f"; did you mean {plain(' or '.join(names))}?" if names else ""


def _is_alone(delayq: HasServices, picks: Picks) -> bool:
    """Return whether no waiting task has a name, which other apps may know."""
    return _is_small(delayq) and not any(True for _ in Selection(delayq.services, picks))


def _is_small(delayq: HasServices) -> bool:
    counts = reading.counts(delayq)
    return counts.scheduled + counts.paused + counts.in_flight + counts.dead <= MOST


_WHEN = TimeParam(ago=True, days=True)
_FORMS = f"WHEN is {first_forms(FILTERS)}."
_AGAIN = "This and the next three can be given more than once: any of the values is enough."
_STATES = [name.lower() for name in STATES]


Options = TypeVar("Options")


def taken(kind: type[Options], given: dict[str, Any]) -> Options:
    """Take a command's options that are the fields of a dataclass; return them as one."""
    names = [each.name for each in fields(kind) if each.name in given]  # type: ignore[arg-type]
    return kind(**{name: given.pop(name) for name in names})


@dataclass(frozen=True)
class Filters:
    """The filter options, as they were typed."""

    tag: tuple[str, ...]
    task: tuple[str, ...]
    queue: tuple[str, ...]
    state: tuple[str, ...]
    dead: bool
    overdue: bool
    due: GivenSpan | None
    after_due: GivenTime | None
    before_due: GivenTime | None

    @property
    def named(self) -> set[str]:
        """The names of those that were given; ``--dead`` is a state."""
        given = {name for name, value in vars(self).items() if value not in (None, False, ())}
        return {"state" if name == "dead" else name for name in given}

    def picked(self, ctx: click.Context) -> Picks:
        """Return their tasks.

        Times are instants. An overdue task is due by now, by Redis's clock.
        """
        states = [name.upper() for name in self.state] + [State.DEAD.value] * self.dead
        spans: list[Ends] = [(None, None)]
        if self.due is not None:
            spans.append(_ends_of(ctx, self.due))
        if self.after_due is not None:
            spans.append((moment_of(ctx, self.after_due), None))
        if self.before_due is not None:
            spans.append((None, moment_of(ctx, self.before_due)))
        if self.overdue:
            if states:
                raise click.UsageError("--overdue selects waiting tasks; it takes no --state.", ctx)
            # A task that is due now is overdue, so the end is the next millisecond.
            end_ms = clock.to_ms(now_of(ctx), zone_of(ctx)) + 1
            states = [State.SCHEDULED.value]
            spans.append((None, from_ms(end_ms)))
        after, before = overlap(*spans)
        # An empty value is not a missing filter: keep it, so that the selection refuses it.
        some = (self.tag or None, self.task or None, self.queue or None, states or None)
        return Picks(*some, after, before)


def picks(group: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add the filter options to a command, which gets them as ``filters``.

    Args:
        group: Their heading in the help.
    """
    states = click.Choice(_STATES, case_sensitive=False)
    options = (
        (("--tag",), {"multiple": True, "help": f"With this tag. {_AGAIN}"}),
        (("--task",), {"multiple": True, "help": "Calls of the task of this name."}),
        (("--queue",), {"multiple": True, "help": "Sent with this queue."}),
        (("--state",), {"multiple": True, "type": states, "help": "In this state."}),
        (("--dead",), {"is_flag": True, "help": "The same as --state dead."}),
        (("--overdue",), {"is_flag": True, "help": "Due by now, waiting, and not paused."}),
        (
            ("--due",),
            {
                "type": SpanParam(),
                "help": "Due on this day: today, tomorrow, sun, '29 Nov', 'this week'; from one to "
                "another, mon..fri; or until a time, +2h. Either side of .. may be empty.",
            },
        ),
        (
            ("--due-from", "after_due"),
            {"type": _WHEN, "help": f"Due at this time or later. {_FORMS}"},
        ),
        (("--due-before", "before_due"), {"type": _WHEN, "help": "Due before this time."}),
    )

    def give(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def filtered(*context: click.Context, **given: Any) -> None:
            given["filters"] = taken(Filters, given)
            command(*context, **given)

        decorated: Callable[..., Any] = filtered
        for names, how in reversed(options):
            decorated = click.option(*names, cls=CeleryOption, help_group=group, **how)(decorated)
        return decorated

    return give
