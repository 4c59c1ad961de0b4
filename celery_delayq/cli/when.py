"""Times as one types them, which the help calls WHEN.

2030-01-31T09:00    ISO 8601; without an offset it is in the zone of --utc, --local, or the app's
1893456000          Unix time, in seconds
+1h30m  +90  +1.5h  from now, by Redis's clock; where tasks are picked also -10m: so long ago
by:+30m  by:-30m    from its due time, where there is one to count from
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from itertools import pairwise
from typing import Any

import click
from dateutil.parser import isoparse

from .. import clock
from ..clock import from_ms
from ..errors import InvalidDueTime
from ..operations import reading
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


@dataclass(frozen=True)
class GivenTime:
    """A time that was typed, before it is known what it counts from.

    Attributes:
        kind: ``at``, ``after`` now, ``by`` so much from its due time, or ``never``.
        value: Unix time, a datetime, which may be naive, or a timedelta.
    """

    kind: str
    value: Any

    def moment(self, ctx: click.Context) -> datetime | float:
        """The instant that is meant, where none is counted from a due time."""
        if self.kind == "after":
            soon: datetime = now_of(ctx) + self.value
            return soon
        if isinstance(self.value, datetime) and self.value.tzinfo is None:
            return datetime.combine(self.value, self.value.time(), zone_of(ctx))
        instant: datetime | float = self.value
        return instant

    def move(self, ctx: click.Context) -> dict[str, Any]:
        """What ``reschedule`` takes: ``at``, ``after`` or ``by``."""
        if self.kind == "at":
            return {"at": self.moment(ctx)}
        return {self.kind: self.value}


class When(click.ParamType):  # type: ignore[type-arg]
    """Reads a time.

    Args:
        ago: Whether ``-10m`` is taken.
        due: Whether ``by:+30m`` is taken.
        never: Whether ``never`` is taken.
    """

    name = "when"

    def __init__(self, *, ago: bool = False, due: bool = False, never: bool = False) -> None:
        self._ago, self._due, self._never = ago, due, never

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> GivenTime:
        """What was typed as a time; what is none is an error of usage, which says what is one."""
        if isinstance(value, GivenTime):
            return value
        try:
            return self.read(value)
        except (InvalidDueTime, ValueError, OverflowError):
            self.fail(f"{value[:_SHOWN]!r} is no time; {self._expected(value)}", param, ctx)

    def read(self, text: str) -> GivenTime:
        """The time that is typed as *text*; an error, where it is none."""
        if self._never and text == "never":
            return GivenTime("never", None)
        if self._due and text.startswith(_BY):
            span = _signed(text[len(_BY) :])
            return GivenTime("by", _checked(clock.by, span))
        if text.startswith("+") or (self._ago and text.startswith("-")):
            return GivenTime("after", _checked(clock.after, _signed(text)))
        value = float(text) if _NUMBER.fullmatch(text) else isoparse(text)
        # In any zone: what that moves past the end of time the store refuses.
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
    """What to type in place of -5m, which was taken for an unknown *option*, if it was that."""
    spans = (word for word in words if word.startswith(option) and _is_read(_span, word[1:]))
    word = next(spans, None)
    return word and f"{word} is no option; to move a task earlier than it is due, type by:{word}"


def misplaced(words: Sequence[str]) -> str | None:
    """What to type where the last of *words* is no time, if one of the others is."""
    for day, time in pairwise(words):
        if _DAY.fullmatch(day) and _TIME.fullmatch(time):
            hour, _, rest = time.partition(":")
            return f"a time is one word; put a T between: {day}T{hour:0>2}:{rest}"
    for before, word in pairwise(["", *words]):
        # Not that of an option; and a number may be an id.
        is_own = not before.startswith("--") and not _NUMBER.fullmatch(word)
        if is_own and _is_read(When(due=True).read, word):
            return f"the time comes last, behind the ids: {word}"
    return None


def _is_read(read: Callable[[str], object], text: str) -> bool:
    try:
        read(text)
    except (InvalidDueTime, ValueError, OverflowError):
        return False
    return True


def now_of(ctx: click.Context) -> datetime:
    """The time by Redis's clock, which is one and the same throughout a command."""
    if _NOW not in ctx.meta:
        with ErrorSentences():
            ctx.meta[_NOW] = from_ms(reading.counts(delayq_of(ctx)).now_ms)
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
    """The span, where it is one that can be."""
    read(span)
    return span
