"""Times on the command line, called WHEN in the help.

2030-01-31T09:00    ISO 8601; without an offset, in the zone of --utc, --local, or the app
1893456000          Unix time, in seconds
+1h30m  +90  +1.5h  from now, by Redis's clock; in filters also -10m, ten minutes ago
by:+30m  by:-30m    from the task's due time, for commands that change one
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from itertools import pairwise
from typing import Any, NamedTuple

import click

from ...core import clock
from ...core.clock import from_ms
from ...core.errors import InvalidDueTime
from ...core.zones import instant
from .common import ErrorSentences, delayq_of
from .zones import zone_of

_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_PART = r"(?:(\d+(?:\.\d+)?){})?"
_SPAN = re.compile("".join(map(_PART.format, "dhms")))
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_TIME = re.compile(r"\d{1,2}:\d\d\S*")
_UNITS = ("days", "hours", "minutes", "seconds")
_BY = "by:"
_NOW = "celery_delayq.now"  # in a context's meta
_SHOWN = 60  # characters of what was typed

_FORMS = ("2030-01-31T09:00", "Unix time in seconds", "+1h30m from now (s m h d)")
_AGO = "-10m for ago"
_FROM_DUE = "by:+30m from its due time"


class Move(NamedTuple):
    """The one argument of ``reschedule`` that was given."""

    at: datetime | float | None = None
    after: timedelta | None = None
    by: timedelta | None = None


@dataclass(frozen=True)
class GivenTime:
    """A time from the command line, not yet resolved to an instant.

    Attributes:
        kind: ``at``, ``after`` (from now), ``by`` (from the due time), or ``never``.
        value: Unix time, a datetime (aware or naive), or a timedelta.
    """

    kind: str
    value: Any

    def moment(self, ctx: click.Context) -> datetime | float:
        """Return the instant; not for ``by``, which needs a due time."""
        if self.kind == "after":
            soon: datetime = now_of(ctx) + self.value
            return soon
        if isinstance(self.value, datetime) and self.value.tzinfo is None:
            return instant(self.value, zone_of(ctx))
        moment: datetime | float = self.value
        return moment

    def move(self, ctx: click.Context) -> Move:
        """Return the argument for ``reschedule``."""
        if self.kind == "at":
            return Move(at=self.moment(ctx))
        return Move(after=self.value) if self.kind == "after" else Move(by=self.value)


class TimeParam(click.ParamType):  # type: ignore[type-arg]
    """Parses a time.

    Args:
        ago: Whether to accept ``-10m``.
        due: Whether to accept ``by:+30m``.
        never: Whether to accept ``never``.
    """

    name = "when"

    def __init__(self, *, ago: bool = False, due: bool = False, never: bool = False) -> None:
        self._ago, self._due, self._never = ago, due, never

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> GivenTime:
        """Parse *value*; if it is not a time, raise a usage error with examples."""
        if isinstance(value, GivenTime):
            return value
        try:
            return self.read(value)
        except (InvalidDueTime, ValueError, OverflowError):
            self.fail(f"{value[:_SHOWN]!r} is not a time; {self._expected(value)}", param, ctx)

    def read(self, text: str) -> GivenTime:
        """Parse *text*; raise an error if it is not a time."""
        if self._never and text == "never":
            return GivenTime("never", None)
        if self._due and text.startswith(_BY):
            span = _signed(text[len(_BY) :])
            return GivenTime("by", _checked(clock.by, span))
        if text.startswith("+") or (self._ago and text.startswith("-")):
            return GivenTime("after", _checked(clock.after, _signed(text)))
        value = float(text) if _NUMBER.fullmatch(text) else clock.read(text)
        # Check it in any zone: the store refuses a time that the real zone moves out of range.
        clock.at(value, timezone.utc)
        return GivenTime("at", value)

    def _expected(self, text: str) -> str:
        bare = _NUMBER.fullmatch(text) or (text and _SPAN.fullmatch(text))
        if bare and len(text) < len("315532800"):
            from_due = f", by:+{text} from its due time" if self._due else ""
            return f"expected +{text} from now{from_due}, or a time such as 2030-01-31T09:00"
        forms = [*_FORMS, *[_AGO] * self._ago, *[_FROM_DUE] * self._due, *["never"] * self._never]
        return f"expected one before 2255-06-05: {', '.join(forms[:-1])}, or {forms[-1]}"


def earlier(option: str, words: Sequence[str]) -> str | None:
    """Return what to type instead of -5m, if that was parsed as the unknown *option*."""
    spans = (word for word in words if word.startswith(option) and _is_read(_span, word[1:]))
    word = next(spans, None)
    return word and f"{word} is not an option; to move a task to an earlier time, type by:{word}"


def misplaced(words: Sequence[str]) -> str | None:
    """Return what to type if a time is among *words*, but not the last one."""
    for day, time in pairwise(words):
        if _DAY.fullmatch(day) and _TIME.fullmatch(time):
            hour, _, rest = time.partition(":")
            return f"a time is one word; put a T between: {day}T{hour:0>2}:{rest}"
    for before, word in pairwise(["", *words]):
        # Skip values of options, and numbers, which may be ids.
        is_own = not before.startswith("--") and not _NUMBER.fullmatch(word)
        if is_own and _is_read(TimeParam(due=True).read, word):
            return f"the time comes last, after the ids: {word}"
    return None


def _is_read(read: Callable[[str], object], text: str) -> bool:
    try:
        read(text)
    except (InvalidDueTime, ValueError, OverflowError):
        return False
    return True


def now_of(ctx: click.Context) -> datetime:
    """Return the time by Redis's clock, read once per command."""
    if _NOW not in ctx.meta:
        with ErrorSentences():
            ctx.meta[_NOW] = from_ms(delayq_of(ctx).services.entries.counts().now_ms)
    now: datetime = ctx.meta[_NOW]
    return now


def _signed(text: str) -> timedelta:
    sign, span = text[:1], text[1:]
    if sign not in ("+", "-"):
        raise ValueError(text)
    return _span(span) if sign == "+" else -_span(span)


def _span(text: str) -> timedelta:
    if _NUMBER.fullmatch(text):
        return timedelta(seconds=float(text))
    found = _SPAN.fullmatch(text)
    if not text or not found:
        raise ValueError(text)
    parts = zip(_UNITS, found.groups(), strict=True)
    return timedelta(**{unit: float(number) for unit, number in parts if number})


def _checked(read: Any, span: timedelta) -> timedelta:
    """Return the span; *read* raises if it is invalid."""
    read(span)
    return span
