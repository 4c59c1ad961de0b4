"""Checks of task ids, unique keys and tags; and targets: an entry's id, key or member."""

from __future__ import annotations

from typing import Any, Union
from uuid import UUID

from ..errors import InvalidOption

LONGEST_ID = 512  # bytes; a task id is part of every index
LONGEST_NAME = 255  # bytes of a unique key, or a tag

_EXPECTED = f"text of 1 to {LONGEST_ID} bytes"
_NAME_EXPECTED = f"text of 1 to {LONGEST_NAME} bytes, without NUL"


def id_text(task_id: Any) -> Any:
    """Return the text of a ``UUID``, and anything else as it is."""
    return str(task_id) if isinstance(task_id, UUID) else task_id


def checked_id(task_id: str) -> str:
    """Return *task_id* as plain text, if it is valid.

    For a ``(str, Enum)`` that is its value, as in JSON; ``str()`` of one may return its name.

    Raises:
        InvalidOption: it is not text, is empty, or is longer than 512 bytes.
    """
    if not isinstance(task_id, str):
        raise InvalidOption("task_id", task_id, _EXPECTED)
    if not 0 < _size_of(task_id) <= LONGEST_ID:
        raise InvalidOption("task_id", task_id, _EXPECTED)
    return plain_text(task_id)


def checked_name(name: str, value: str) -> str:
    """Return *value* as plain text, if it can be a unique key or a tag; *name* is the option's.

    Raises:
        InvalidOption: it is not text, is empty, is longer than 255 bytes, or has a NUL.
    """
    is_text = isinstance(value, str) and "\0" not in value
    if not is_text or not 0 < _size_of(value) <= LONGEST_NAME:
        raise InvalidOption(name, value, _NAME_EXPECTED)
    return plain_text(value)


def plain_text(text: str) -> str:
    """Return *text* as ``str`` itself; for a ``(str, Enum)``, its value."""
    # Django's lazy objects pass for text by isinstance, but are none.
    return str.__str__(text) if issubclass(type(text), str) else str(text)


def _size_of(text: str) -> int:
    """Return the size in bytes; 0 if it is no Unicode."""
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        return 0


# A task id, or the output of `target_of_key` or `target_of_member`.
Target = Union[str, bytes]


def target_of(who: Target) -> bytes:
    """Return a target as scripts take it; see ``lua/prelude/entry.lua``."""
    return who if isinstance(who, bytes) else b"i" + who.encode()


def target_of_key(key: str) -> bytes:
    """Return the target for the entry that has this unique key."""
    return b"k" + key.encode()


def target_of_member(member: bytes) -> bytes:
    """Return the target for one member: an id with its insertion number."""
    return b"m" + member


def named(who: Target) -> str:
    """Return an id or a key, as errors show it."""
    if isinstance(who, str):
        return who
    return who[7 if who.startswith(b"m") else 1 :].decode(errors="replace")
