"""Times on the command line, called WHEN in the help; ``operations/typed_times.py`` reads them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from itertools import pairwise, takewhile
from typing import Any, NamedTuple

import click

from ...core.clock import from_ms
from ..typed_times import GivenTime, TypedTimeError, is_day, read, span_of
from .common import ErrorSentences, delayq_of
from .zones import zone_of

_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_LONGEST_DAY = 3  # words: 26 Nov 2026
_QUOTE = "a time is one word; put it into quotes: '{}'"
_NOW = "celery_delayq.now"  # in a context's meta


class Move(NamedTuple):
    """The one argument of ``reschedule`` that was given."""

    at: datetime | float | None = None
    after: timedelta | None = None
    by: timedelta | None = None


class TimeParam(click.ParamType):  # type: ignore[type-arg]
    """Parses a time.

    Args:
        ago: Whether to accept ``-10m``.
        due: Whether to accept ``by:+30m``.
        never: Whether to accept ``never``.
    """

    name = "when"

    def __init__(self, *, ago: bool = False, due: bool = False, never: bool = False) -> None:
        self.read = partial(read, ago=ago, due=due, never=never)

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> GivenTime:
        """Parse *value*; if it is not a time, raise a usage error with examples."""
        if isinstance(value, GivenTime):
            return value
        try:
            return self.read(value)
        except TypedTimeError as error:
            self.fail(str(error), param, ctx)


def moment_of(ctx: click.Context, given: GivenTime) -> datetime | float:
    """Return the instant of a time that is not ``by`` a task's own; a usage error if it has two."""
    try:
        return given.moment(partial(now_of, ctx), partial(zone_of, ctx))
    except TypedTimeError as error:
        raise click.UsageError(str(error), ctx) from None


def move_of(ctx: click.Context, given: GivenTime) -> Move:
    """Return the argument for ``reschedule``."""
    if given.kind == "after":
        return Move(after=given.value)
    return Move(by=given.value) if given.kind == "by" else Move(at=moment_of(ctx, given))


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
