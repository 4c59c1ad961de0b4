"""Log lines that stay one line of plain text, whatever stands in an id, a queue or a reason."""

from __future__ import annotations

import logging

from .errors import plain

__all__ = ["logger_of", "plain"]


class _Plain(logging.Filter):
    """Escapes what a line is told of; numbers stay numbers."""

    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple):
            record.args = tuple(
                one if isinstance(one, (int, float)) else plain(one) for one in record.args
            )
        return True


_FILTER = _Plain()


def logger_of(name: str) -> logging.Logger:
    """The logger of a module, whose lines are plain."""
    logger = logging.getLogger(name)
    logger.addFilter(_FILTER)
    return logger
