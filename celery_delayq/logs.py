"""Text for people: lines of plain text, and the same form of spans and numbers everywhere."""

from __future__ import annotations

import logging
from itertools import pairwise

from .errors import plain

__all__ = ["counted", "lasting", "logger_of", "plain", "waiting"]

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
