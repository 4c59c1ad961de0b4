"""The author of changes, as the program names it: for signals, the log and the history.

    with acting("ann@support"):   --> a context variable --> the name of each call --> its event
        delayq.cancel(id)                                --> signals, log lines

A change of many tasks has a name too, which its calls carry in the same way: so each step can count
itself in the change's line of the history, and a cancel is kept under that name for an undo.

This makes no audit trail: a program that reaches Redis can change tasks without a name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar, Union

from .errors import InvalidOption
from .logs import plain

LONGEST = 64  # bytes
_EXPECTED = f"text of 1 to {LONGEST} bytes, all of them printable"

#: A name, or what returns one when it is needed.
Name = Union[str, Callable[[], str]]
Step = TypeVar("Step")

_name: ContextVar[Name] = ContextVar("celery_delayq.acting", default="")
_bulk: ContextVar[str] = ContextVar("celery_delayq.bulk", default="")


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


@contextmanager
def part_of(bulk: str) -> Iterator[None]:
    """Let each call within a ``with`` block be a step of the change of many tasks named *bulk*."""
    token = _bulk.set(bulk)
    try:
        yield
    finally:
        _bulk.reset(token)


def steps_of(bulk: str, steps: Iterator[Step]) -> Iterator[Step]:
    """Yield from *steps*, each taken as a part of *bulk*; what the caller does between is none."""
    while True:
        with part_of(bulk):
            step = next(steps, None)
        if step is None:
            return
        yield step


def author() -> bytes:
    """Return who makes a call, and after a NUL the change of many of which it is a step, if any."""
    bulk = _bulk.get()
    return actor().encode(errors="replace") + (f"\0{bulk}".encode() if bulk else b"")


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
