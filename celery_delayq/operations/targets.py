"""Who is meant: a task, by its result, its UUID or its id; or whoever waits under a unique key."""

from __future__ import annotations

from typing import Any, Union
from uuid import UUID

from celery.app.task import Task
from celery.result import AsyncResult, GroupResult

from ..errors import InvalidOption
from ..store import ids

#: What names a task.
Named = Union[str, UUID, "AsyncResult[Any]", GroupResult]

_EXPECTED = "text of 1 to 512 bytes, a UUID, or a result"


def target_of(task_id: Named | None = None, key: str | None = None) -> bytes:
    """Who is meant, as the store takes it; exactly one of the two is given.

    Raises:
        InvalidOption: none or both of them, or one that can be no id, or no key.
    """
    if task_id is not None and key is not None:
        raise InvalidOption("key", key, "a task's id or a key, not both")
    if key is not None:
        return ids.target_of_key(ids.checked_name("key", key))
    return ids.target_of(id_of(task_id))


def id_of(given: Any) -> str:
    """The id of whatever names a task.

    Raises:
        InvalidOption: it names none.
    """
    if isinstance(given, (AsyncResult, GroupResult)):
        given = given.id
    elif isinstance(given, UUID):
        given = str(given)
    if not isinstance(given, str):
        raise InvalidOption("task_id", given, _EXPECTED + _hint(given))
    return ids.checked_id(given)


def _hint(given: Any) -> str:
    if isinstance(given, Task):
        return "; all calls of a task are select(task=...)"
    if isinstance(given, (list, tuple, set, frozenset)):
        return "; one of them at a time, or select(...)"
    return "; pass its .id" if isinstance(getattr(given, "id", None), str) else ""
