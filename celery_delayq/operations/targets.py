"""Who is meant: a task, by its result, its UUID or its id; or whoever waits under a unique key."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import Any, TypeVar, Union, cast
from uuid import UUID

from celery.app.task import Task
from celery.result import AsyncResult, GroupResult

from ..errors import InvalidOption, NotATask
from ..store import ids

#: What names a task.
Named = Union[str, UUID, "AsyncResult[Any]", GroupResult]

_EXPECTED = "text of 1 to 512 bytes, a UUID, or a result"

# What `select` takes, and what it can do to the tasks that it picks.
_PICKS = {"tag", "task", "queue", "state", "after_due", "before_due", "all"}
_DOES = {"cancel": "()", "reschedule": "(...)", "run_now": "()", "retry": "()", "remove": "()"}

Operation = TypeVar("Operation", bound=Callable[..., Any])


def of_one_task(operation: Operation) -> Operation:
    """Let an operation on one task name the right call if a caller picks many, as by ``tag=``."""
    name = operation.__name__
    unknown = _PICKS - signature(operation).parameters.keys()
    does = f".{name}{_DOES[name]}" if name in _DOES else ""

    @wraps(operation)
    def call(*args: Any, **given: Any) -> Any:
        for wrong in unknown & given.keys():
            many = f"select({wrong}={given[wrong]!r}){does}"
            expected = f"a task's id or key, as {name} is for one task; for many it is {many}"
            raise NotATask(wrong, given[wrong], expected)
        return operation(*args, **given)

    return cast(Operation, call)


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
