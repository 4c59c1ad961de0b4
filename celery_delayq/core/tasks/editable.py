"""What an edit of a task can change; ``operations/editing.py`` makes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypedDict

from ..store.record import Tags


class Changes(TypedDict, total=False):
    """The values that an edit can change, as :func:`editing.edit` documents them; but the key."""

    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    priority: int | None
    expires: float | timedelta | datetime | str | None
    queue: str
    add_tags: Tags
    remove_tags: Tags


class ChangesOfOne(Changes, total=False):
    """The same, and the unique key, which only one task can have."""

    key: str | None
