"""Text for people: lines of plain text, and the same form of spans and numbers everywhere."""

from __future__ import annotations

import logging
import re
from datetime import date, datetime, timedelta
from itertools import pairwise
from typing import Any, cast

SHOWN = 500  # characters of a value that a message shows

# Options in a URL's query that are no secrets.
_OPEN = ("virtual_host", "ssl_cert_reqs", "ssl_check_hostname", "ssl_ca_certs", "ssl_ca_path")
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
    inside = ", ".join(f"{name!r}: {_told(part)}" for name, part in named)
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
                arg if isinstance(arg, (int, float)) else plain(arg) for arg in record.args
            )
        return True


_FILTER = _Plain()


def logger_of(name: str) -> logging.Logger:
    """Return the logger of a module, with lines of plain text."""
    logger = logging.getLogger(name)
    logger.addFilter(_FILTER)
    return logger


def without_secrets(url: Any) -> Any:
    """Return *url*, valid or not, without anything that may be a user name, password or key."""
    text = str(url)
    if not any(sign in text for sign in "@?="):
        return url
    each = text.split(";")
    if len(each) > 1 and all(part.startswith("sentinel://") for part in each):
        return ";".join(str(without_secrets(part)) for part in each)
    scheme, separator, rest = text.partition("://")
    if not separator:
        scheme, rest = "", text
    place, question, query = rest.partition("?")
    # A question mark in a password, or an @ in the query? Only one of the two is a secret.
    if "@" in query or "=" in place or not re.fullmatch(r"[\w+]*", scheme):
        return "***"
    pairs = "&".join(map(_without_secret, query.split("&"))) if query else ""
    return f"{scheme}{separator}{place.rpartition('@')[2]}{question}{pairs}"


def _without_secret(pair: str) -> str:
    name, equals, value = pair.partition("=")
    if not equals:
        return "***"
    return pair if name in _OPEN and re.fullmatch(r"[\w./-]*", value) else f"{name}=***"
