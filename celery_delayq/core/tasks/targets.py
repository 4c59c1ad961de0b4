"""Targets of operations: a task, by what names it or by the key under which it waits."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import Any, TypeVar, Union, cast
from uuid import UUID

from celery.app.task import Task
from celery.result import AsyncResult, GroupResult

from ..errors import InvalidOption, NotATask
from ..store import keys
from ..store.changes import REVISION_BYTES
from .scheduled_task import ScheduledTask

#: A value that identifies a task: an id, a result, or what ``tasks`` and ``get`` return.
Named = Union[str, UUID, "AsyncResult[Any]", GroupResult, ScheduledTask]

_EXPECTED = "text of 1 to 512 bytes, a UUID, a result or a ScheduledTask"

_NO_REVISION = "none for a selection: name one task, by its id or key"

# The filters of `select`, and its operations with their arguments.
_PICKS = {"tag", "task", "queue", "state", "after_due", "before_due", "all"}
_DOES = {"cancel": "()", "reschedule": "(...)", "run_now": "()", "retry": "()", "remove": "()"}

Operation = TypeVar("Operation", bound=Callable[..., Any])


def of_one_task(operation: Operation) -> Operation:
    """Make an operation on one task name the right call if it gets a filter such as ``tag=``."""
    name = operation.__name__
    unknown = _PICKS - signature(operation).parameters.keys()
    does = f".{name}{_DOES[name]}" if name in _DOES else ""

    @wraps(operation)
    def call(*args: Any, **given: Any) -> Any:
        for wrong in unknown & given.keys():
            many = f"select({wrong}={given[wrong]!r}){does}"
            expected = f"a task's id or key, as {name} is for one task; for many, use {many}"
            raise NotATask(wrong, given[wrong], expected)
        return operation(*args, **given)

    return cast(Operation, call)


def of_many(operation: Operation) -> Operation:
    """Make an operation on a selection refuse ``if_revision``, which belongs to one task."""

    @wraps(operation)
    def call(*args: Any, **given: Any) -> Any:
        if "if_revision" in given:
            raise InvalidOption("if_revision", given["if_revision"], _NO_REVISION)
        return operation(*args, **given)

    return cast(Operation, call)


def checked_revision(given: int | None) -> int | None:
    """Return the revision that a task must have, if there is one.

    Raises:
        InvalidOption: it is not a task's revision.
    """
    if given is None or (type(given) is int and 0 <= given < 256**REVISION_BYTES):
        return given
    raise InvalidOption("if_revision", given, "the revision of a task that you read")


def target_of(task_id: Named | None = None, key: str | None = None) -> bytes:
    """Return the target for the store; pass either an id or a key.

    Raises:
        InvalidOption: none or both are given, or the id or key is invalid.
    """
    if task_id is not None and key is not None:
        raise InvalidOption("key", key, "a task's id or a key, not both")
    if key is not None:
        return keys.target_of_key(keys.checked_name("key", key))
    return keys.target_of(id_of(task_id))


def id_of(given: Any) -> str:
    """Return the id of the task that *given* identifies.

    Raises:
        InvalidOption: it does not identify a task.
    """
    if isinstance(given, (AsyncResult, GroupResult, ScheduledTask)):
        given = given.id
    if isinstance(given, UUID):
        given = str(given)
    if not isinstance(given, str):
        raise InvalidOption("task_id", given, _EXPECTED + _hint(given))
    return keys.checked_id(given)


def _hint(given: Any) -> str:
    if isinstance(given, Task):
        return "; for all calls of a task, use select(task=...)"
    if isinstance(given, (list, tuple, set, frozenset)):
        return "; pass one at a time, or use select(...)"
    return "; pass its .id" if isinstance(getattr(given, "id", None), str) else ""
