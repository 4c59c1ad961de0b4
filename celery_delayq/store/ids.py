"""What a task id may be, and who is meant by one, or by a unique key."""

from __future__ import annotations

from typing import Union

from ..errors import InvalidOption

LONGEST_ID = 512  # bytes; a task id is part of every index

_EXPECTED = f"text of 1 to {LONGEST_ID} bytes"


def checked_id(task_id: str) -> str:
    """*task_id*, if it can be one, as plain text.

    Of a ``(str, Enum)`` that is its value, which is also what JSON makes of it; ``str`` of one may
    be its name.

    Raises:
        InvalidOption: not text, empty, or longer than 512 bytes.
    """
    if not isinstance(task_id, str):
        of_it = "; it is the id of a result, .id" if hasattr(task_id, "id") else ""
        raise InvalidOption("task_id", task_id, _EXPECTED + of_it)
    try:
        size = len(task_id.encode())
    except UnicodeEncodeError:
        size = 0
    if not 0 < size <= LONGEST_ID:
        raise InvalidOption("task_id", task_id, _EXPECTED)
    return str.__str__(task_id)


# A task id; or what `target_of_key` or `target_of_member` made.
Target = Union[str, bytes]


def target_of(who: Target) -> bytes:
    """Who is meant, as scripts take it; see ``lua/prelude/entry.lua``."""
    return who if isinstance(who, bytes) else b"i" + who.encode()


def target_of_key(key: str) -> bytes:
    """Whoever has this unique key."""
    return b"k" + key.encode()


def target_of_member(member: bytes) -> bytes:
    """The entry that is this member: of that id, and that insertion number."""
    return b"m" + member


def named(who: Target) -> str:
    """An id or a key, as errors show it."""
    if isinstance(who, str):
        return who
    return who[7 if who.startswith(b"m") else 1 :].decode(errors="replace")
