"""The author of changes, as the program names it: for signals, the log and the history.

    with acting("ann@support"):   --> a context variable --> the name of each call --> its event
        delayq.cancel(id)                                --> signals, log lines

This makes no audit trail: a program that reaches Redis can change tasks without a name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Union

from .errors import InvalidOption
from .logs import plain

LONGEST = 64  # bytes
_EXPECTED = f"text of 1 to {LONGEST} bytes, all of them printable"

#: A name, or what returns one when it is needed.
Name = Union[str, Callable[[], str]]

_name: ContextVar[Name] = ContextVar("celery_delayq.acting", default="")


@contextmanager
def acting(name: str) -> Iterator[None]:
    """Name the person or program that makes the changes within a ``with`` block.

    It holds in this thread or task of asyncio, and in what that starts with its context.

    Args:
        name: 1 to 64 bytes of printable text.

    Raises:
        InvalidOption: *name* is none.
    """
    if not isinstance(name, str) or not name.isprintable() or not 0 < _size(name) <= LONGEST:
        raise InvalidOption("name", name, _EXPECTED)
    with acting_as(name):
        yield


@contextmanager
def acting_as(name: Name) -> Iterator[None]:
    """Do the same with a name that another program made, as far as it fits; or with what has it."""
    token = _name.set(name)
    try:
        yield
    finally:
        _name.reset(token)


def actor() -> str:
    """Return the name of the author; empty without one."""
    name = _name.get()
    if not name:
        return ""
    return fitting(name if isinstance(name, str) else name())


def by() -> str:
    """Return the same for a log line: ``" by ann"``."""
    name = actor()
    return f" by {name}" if name else ""


def fitting(name: str) -> str:
    """Return a name with unprintable characters escaped, cut to :data:`LONGEST` bytes."""
    text = plain(name)
    if _size(text) <= LONGEST:
        return text
    return text.encode()[: LONGEST - 3].decode(errors="ignore") + "\u2026"


def _size(text: str) -> int:
    return len(text.encode(errors="replace"))
