"""Text for people: lines of plain text, and the same form of spans and numbers everywhere."""

from __future__ import annotations

import logging
from datetime import date, datetime, timedelta
from itertools import pairwise
from typing import cast

SHOWN = 500  # characters of a value that a message shows

_UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def lasting(seconds: float) -> str:
    """Return a span in its largest unit and the next one: ``2 h 5 min``, ``3 d``."""
    left = max(0, round(seconds))
    for (size, unit), (smaller, its_unit) in pairwise(_UNITS):
        if left >= size:
            count, rest = left // size, left % size // smaller
            return f"{count:,} {unit} {rest} {its_unit}" if rest else f"{count:,} {unit}"
    return f"{left} s"


def counted(count: int, thing: str = "task") -> str:
    """Return a count of something: ``1 task``, ``10,001 tasks``."""
    return f"{count:,} {thing}" + "s" * (count != 1)


def waiting(count: int) -> str:
    """``1 task waits``, ``2 tasks wait``."""
    return f"{counted(count)} wait" + "s" * (count == 1)


def plain(text: object) -> str:
    """Return text for one row: characters that move the cursor or begin a line are escaped."""
    line = str(text)
    if line.isprintable():
        return line
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape").decode() for one in line
    )


def shown(value: object) -> str:
    """Return a value as a message shows it: its beginning, if it is long."""
    # Times that exclude each other are passed by name.
    named = value.items() if type(value) is dict else ()
    inside = ", ".join(f"{name!r}: {_told(one)}" for name, one in named)
    text = f"{{{inside}}}" if inside else _told(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}… ({len(text)} characters)"


def _told(value: object) -> str:
    """Return a time in ISO format, a span in words, and the ``repr`` of anything else."""
    if type(value) in (datetime, date):
        return cast(date, value).isoformat()
    return _span(value) if type(value) is timedelta else repr(value)


def _span(value: timedelta) -> str:
    """Return a span in words, such as ``1 day 2 hours``."""
    left, parts = abs(value), []
    for unit in ("day", "hour", "minute"):
        count, left = divmod(left, timedelta(**{f"{unit}s": 1}))
        if count:
            parts.append(f"{count} {unit}" + "s" * (count > 1))
    if left or not parts:
        text = f"{left.total_seconds():f}".rstrip("0").rstrip(".")
        parts.append(f"{text} second" + "s" * (text != "1"))
    return "minus " * (value < timedelta(0)) + " ".join(parts)


class _Plain(logging.Filter):
    """Escapes the arguments of a line; numbers stay numbers."""

    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple):
            record.args = tuple(
                one if isinstance(one, (int, float)) else plain(one) for one in record.args
            )
        return True


_FILTER = _Plain()


def logger_of(name: str) -> logging.Logger:
    """Return the logger of a module, with lines of plain text."""
    logger = logging.getLogger(name)
    logger.addFilter(_FILTER)
    return logger
