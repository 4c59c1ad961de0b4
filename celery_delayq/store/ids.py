"""What a task id may be."""

from __future__ import annotations

from ..errors import InvalidOption

LONGEST_ID = 512  # bytes; a task id is part of every index


def checked_id(task_id: str) -> str:
    """*task_id*, if it can be one.

    Raises:
        InvalidOption: not text, empty, or longer than 512 bytes.
    """
    try:
        size = len(task_id.encode())
    except (AttributeError, UnicodeEncodeError):
        size = 0
    if not 0 < size <= LONGEST_ID:
        raise InvalidOption("task_id", task_id, f"text of 1 to {LONGEST_ID} bytes")
    return task_id
