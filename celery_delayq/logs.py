"""Keeps a log line one line of plain text, whatever an id, a queue or a reason contains."""

from __future__ import annotations

import logging

__all__ = ["logger_of", "plain"]


def plain(text: object) -> str:
    """Return text for one row; characters that move a cursor or begin a line become escapes."""
    line = str(text)
    if line.isprintable():
        return line
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape").decode() for one in line
    )


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
