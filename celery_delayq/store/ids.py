"""What a task id may be, and who is meant by one, or by a unique key."""

from __future__ import annotations

from typing import Union

from ..errors import InvalidOption

LONGEST_ID = 512  # bytes; a task id is part of every index
LONGEST_NAME = 255  # bytes of a unique key, or a tag

_EXPECTED = f"text of 1 to {LONGEST_ID} bytes"
_NAME_EXPECTED = f"text of 1 to {LONGEST_NAME} bytes, without NUL"


def checked_id(task_id: str) -> str:
    """*task_id*, if it can be one, as plain text.

    Of a ``(str, Enum)`` that is its value, which is also what JSON makes of it; ``str`` of one may
    be its name.

    Raises:
        InvalidOption: not text, empty, or longer than 512 bytes.
    """
    if not isinstance(task_id, str):
        raise InvalidOption("task_id", task_id, _EXPECTED)
    if not 0 < _size_of(task_id) <= LONGEST_ID:
        raise InvalidOption("task_id", task_id, _EXPECTED)
    return plain_text(task_id)


def checked_name(name: str, value: str) -> str:
    """*value*, if it can be a unique key or a tag, as plain text; *name* is the option's.

    Raises:
        InvalidOption: not text, empty, longer than 255 bytes, or with a NUL.
    """
    is_text = isinstance(value, str) and "\0" not in value
    if not is_text or not 0 < _size_of(value) <= LONGEST_NAME:
        raise InvalidOption(name, value, _NAME_EXPECTED)
    return plain_text(value)


def plain_text(text: str) -> str:
    """*text* as ``str`` itself; of a ``(str, Enum)``, its value."""
    # A lazy object of Django's says that it is text, and is none.
    return str.__str__(text) if issubclass(type(text), str) else str(text)


def _size_of(text: str) -> int:
    """In bytes; 0 where it is no Unicode."""
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        return 0


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
