"""Edits to a waiting task: new arguments, priority or expiry.

read the entry --> build the new message --> replace it, if it is unchanged
      ^                                             |
      +---------- changed meanwhile ----------------+
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from .. import clock
from ..clock import from_ms
from ..errors import InvalidOption, MessageTooLarge, NotATask, StoreUnavailable, UnreadableRecord
from ..message.draft import Draft
from ..services import HasServices, Services
from ..store import Entry, Outcome
from ..store.record import LAST_MS, NewRecord
from .moves import warn_of_expiry
from .targets import Named, of_one_task, target_of


class _Kept:
    """Marks an argument that was not given, as ``None`` has its own meaning."""

    def __repr__(self) -> str:
        return "as it is"


KEPT: Any = _Kept()

MAX_PRIORITY = 255

_PRIORITY = f"a whole number from 0 to {MAX_PRIORITY}, or None"
_EXPIRES = "seconds after the due time, a timedelta, a time as text or datetime, or None"
_CANVAS = "a task; cancel a canvas and schedule it again"
_READABLE = "a task whose arguments this app accepts, see accept_content"


@dataclass(frozen=True)
class Edit:
    """The new values of an edit; :data:`KEPT` leaves a value as it is.

    Raises:
        InvalidOption: no value is given, or an invalid one.
    """

    args: Any = KEPT
    kwargs: Any = KEPT
    priority: Any = KEPT
    expires: Any = KEPT

    def __post_init__(self) -> None:
        if all(one is KEPT for one in (self.args, self.kwargs, self.priority, self.expires)):
            raise InvalidOption("edit", None, "one of args, kwargs, priority, expires")
        if self.args is not KEPT and not isinstance(self.args, (list, tuple)):
            raise InvalidOption("args", self.args, "a list or a tuple")
        if self.kwargs is not KEPT and not isinstance(self.kwargs, Mapping):
            raise InvalidOption("kwargs", self.kwargs, "a mapping")
        if self.priority is not KEPT and self.priority is not None:
            whole = isinstance(self.priority, int) and not isinstance(self.priority, bool)
            if not whole or not 0 <= self.priority <= MAX_PRIORITY:
                raise InvalidOption("priority", self.priority, _PRIORITY)
        if isinstance(self.expires, bool):
            raise InvalidOption("expires", self.expires, _EXPIRES)

    @property
    def has_arguments(self) -> bool:
        return self.args is not KEPT or self.kwargs is not KEPT


@of_one_task
def edit(
    delayq: HasServices,
    task_id: Named | None = None,
    *,
    key: str | None = None,
    args: Sequence[Any] = KEPT,
    kwargs: Mapping[str, Any] = KEPT,
    priority: int | None = KEPT,
    expires: float | timedelta | datetime | str | None = KEPT,
    if_revision: int | None = None,
) -> Outcome:
    """Change the arguments, priority or expiry of a scheduled task.

    Everything else stays as it is: the message keeps its serializer, compression, headers and
    links. It is not routed again, and Celery sends no signal.

    Args:
        task_id: The result of scheduling, a task that you read, or an id (text or UUID).
        key: Its unique key, in place of an id.
        args: All positional arguments. An ``argsrepr`` that the caller set stays.
        kwargs: All keyword arguments.
        priority: 0 to 255, as the broker defines it; ``None``: the broker's default.
        expires: Seconds after the due time, or a timedelta; a time, as a datetime or ISO 8601
            text; ``None``: never.
        if_revision: Edit the task only if this is still its ``revision``.

    Returns:
        ``Outcome.DONE``, the only true one; or why not. ``UNCHANGED``: it has another revision.

    Raises:
        InvalidOption: no value is given, or an invalid one; the task's current arguments cannot
            be read; it is a canvas (``NotATask``).
        TypeError: the arguments do not fit the task.
        MessageTooLarge: the new message is larger than ``delayq_max_message``.
    """
    services, changes = delayq.services, Edit(args, kwargs, priority, expires)
    outcome = _edit(services, target_of(task_id, key), changes, if_revision)
    if outcome not in (Outcome.DONE, Outcome.UNCERTAIN):
        services.hooks.missed("edit", outcome)
    return outcome


def _edit(services: Services, who: bytes, changes: Edit, if_revision: int | None) -> Outcome:
    until = clock.monotonic() + services.settings.timeout
    while True:
        entry = services.entries.find(who)
        if if_revision is not None and entry and entry.changed_us != if_revision:
            return Outcome.UNCHANGED
        if entry is None:
            # The step itself decides: the task may have left the store, or may just be arriving.
            outcome = services.entries.edit(who, None, NewRecord(b"", b"", b""))
        else:
            new, expires = _edited(services, entry, changes)
            outcome = services.entries.edit(who, entry.record, new)
        if entry is not None and outcome in (Outcome.DONE, Outcome.UNCERTAIN):
            services.hooks.edited(entry.task_id)
            warn_of_expiry(services.timezone, [(entry.task_id, entry.due_ms, expires)])
        if outcome is not Outcome.UNCHANGED or if_revision is not None:
            return outcome
        if clock.monotonic() >= until:
            raise StoreUnavailable("edit", "other processes keep changing the same task", False)


def _edited(services: Services, entry: Entry, changes: Edit) -> tuple[NewRecord, str]:
    """Return the new record, and its expiry if the edit sets one."""
    draft = _draft_of(services, entry, changes)
    if changes.has_arguments:
        _set_arguments(services, draft, changes)
    if changes.expires is not KEPT:
        _set_expiry(services, entry, draft, changes.expires)
    if changes.priority is not KEPT:
        draft.set_priority(changes.priority, services.broker.options)
    new = draft.new_record()
    most = services.settings.max_message
    if new.size > most:
        raise MessageTooLarge(entry.task_id, new.size, most)
    return new, "" if changes.expires is KEPT else draft.expires or ""


def _draft_of(services: Services, entry: Entry, changes: Edit) -> Draft:
    try:
        draft = Draft(entry.message, entry.record, services.app)
    except Exception as error:  # invalid JSON fails in many ways
        raise UnreadableRecord(entry.task_id, f"its message cannot be read: {error!r}") from error
    if draft.is_canvas:
        raise NotATask("task_id", entry.task_id, _CANVAS)
    in_body = changes.has_arguments or (draft.is_v1 and changes.expires is not KEPT)
    if in_body and not draft.is_readable:
        raise InvalidOption("task_id", entry.task_id, _READABLE)
    return draft


def _set_arguments(services: Services, draft: Draft, changes: Edit) -> None:
    args, kwargs = draft.arguments
    args = args if changes.args is KEPT else changes.args
    kwargs = kwargs if changes.kwargs is KEPT else dict(changes.kwargs)
    draft.set_arguments(*_checked(services, draft, args, kwargs))


def _checked(services: Services, draft: Draft, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """Return the arguments as ``apply_async`` would send them.

    Raises:
        TypeError: they do not fit the task, if this process knows it.
    """
    if draft.task not in services.app.tasks:
        services.import_tasks()
    task = services.app.tasks.get(draft.task)
    # A class-based task without a function has no `__header__`.
    fits = getattr(task, "__header__", None)
    if task is not None and fits is not None and task.typing:
        fits(*args, **kwargs)
    dump = getattr(task, "_dump_pydantic_arguments", None)
    if dump is None or draft.serializer == "pickle":
        return args, kwargs
    dumped: tuple[Any, Any] = dump(args, kwargs)
    return dumped


def _set_expiry(services: Services, entry: Entry, draft: Draft, expires: Any) -> None:
    if expires is None:
        draft.set_expiry(None)
    elif isinstance(expires, (datetime, str)):
        draft.set_expiry(from_ms(clock.at(expires, services.timezone).ms))
    else:
        after_ms = _milliseconds(expires)
        draft.set_expiry(from_ms(max(0, min(entry.due_ms + after_ms, LAST_MS))), after_ms)


def _milliseconds(expires: Any) -> int:
    if isinstance(expires, timedelta):
        expires = expires.total_seconds()
    if not isinstance(expires, (int, float)) or not math.isfinite(expires):
        raise InvalidOption("expires", expires, _EXPIRES)
    return round(max(-LAST_MS, min(expires * 1000, LAST_MS)))
