"""The edit of a waiting task: its arguments, priority, expiry, queue, key or tags."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from typing import Any

from ..core import clock
from ..core.clock import from_ms
from ..core.errors import InvalidOption, MessageTooLarge, NotATask, UnreadableRecord
from ..core.services import Services
from ..core.store import Entry, checked_name
from ..core.store.keys import shard_of
from ..core.store.record import LAST_MS, MOST_TAGS, Extras, NewRecord
from .draft import Draft


class _Kept:
    """Marks an argument that was not given, as ``None`` has its own meaning."""

    def __repr__(self) -> str:
        return "as it is"


KEPT: Any = _Kept()

MAX_PRIORITY = 255

_PRIORITY = f"a whole number from 0 to {MAX_PRIORITY}, or None"
_EXPIRES = "seconds after the due time, a timedelta, a time as text or datetime, or None"
CANVAS = "a task; cancel a canvas and schedule it again"
_TAGS = f"a list of at most {MOST_TAGS} tags"
_TOO_MANY = f"at most {MOST_TAGS} tags of a task; {{}} would have {{}}"
_SHARD = "a key of the task's own shard; cancel the task, and schedule it again under this one"
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
    queue: Any = KEPT
    key: Any = KEPT
    add_tags: Any = ()
    remove_tags: Any = ()

    def __post_init__(self) -> None:
        if not (self.has_message or self.key is not KEPT or self.add_tags or self.remove_tags):
            names = ", ".join(field.name for field in fields(self))
            raise InvalidOption("edit", None, f"one of {names}")
        self._check_place()
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

    def _check_place(self) -> None:
        if self.queue is not KEPT and (not isinstance(self.queue, str) or not self.queue):
            raise InvalidOption("queue", self.queue, "a queue's name")
        if self.key is not KEPT and self.key is not None:
            checked_name("key", self.key)
        for name in ("add_tags", "remove_tags"):
            tags = getattr(self, name)
            if not isinstance(tags, (list, tuple, set, frozenset)):
                raise InvalidOption(name, tags, _TAGS)
            object.__setattr__(self, name, tuple(checked_name(name, tag) for tag in tags))

    @property
    def has_arguments(self) -> bool:
        return self.args is not KEPT or self.kwargs is not KEPT

    @property
    def has_message(self) -> bool:
        """Whether it changes the message, and not only the key or tags."""
        others = (self.priority, self.expires, self.queue)
        return self.has_arguments or any(other is not KEPT for other in others)

    def extras(self, entry: Entry) -> Extras:
        """Return the extras of the edited entry.

        Raises:
            InvalidOption: it would have too many tags.
        """
        old = entry.extras
        kept = [tag for tag in (*old.tags, *self.add_tags) if tag not in self.remove_tags]
        tags = tuple(dict.fromkeys(kept))
        if len(tags) > MOST_TAGS:
            raise InvalidOption(
                "add_tags", list(self.add_tags), _TOO_MANY.format(entry.task_id, len(tags))
            )
        if self.key is KEPT or self.key == old.key:
            return replace(old, tags=tags)
        return replace(old, tags=tags, key=self.key or "", hold=old.hold if self.key else "")


def edited(services: Services, entry: Entry, changes: Edit) -> tuple[NewRecord, str]:
    """Return the new record, and its expiry if the edit sets one."""
    extras, shards = changes.extras(entry), len(services.entries.shards)
    if extras.key != entry.extras.key:
        place = shard_of(entry.extras.key or entry.task_id, shards)
        if shard_of(extras.key or entry.task_id, shards) != place:
            raise InvalidOption("key", changes.key, _SHARD)
    draft = _draft_of(services, entry, changes)
    if changes.has_arguments:
        _set_arguments(services, draft, changes)
    if changes.expires is not KEPT:
        _set_expiry(services, entry, draft, changes.expires)
    if changes.priority is not KEPT:
        draft.set_priority(changes.priority, services.broker.options)
    if changes.queue is not KEPT:
        direct, prefix = services.store_is_broker, services.settings.prefix
        draft.set_queue(changes.queue, services.broker, direct=direct, prefix=prefix)
    new = draft.new_record(extras)
    most = services.settings.max_message
    if new.size > most:
        raise MessageTooLarge(entry.task_id, new.size, most)
    return new, "" if changes.expires is KEPT else draft.expires or ""


def _draft_of(services: Services, entry: Entry, changes: Edit) -> Draft:
    try:
        draft = Draft(entry.message, entry.record, services.app)
    except Exception as error:  # invalid JSON fails in many ways
        raise UnreadableRecord(entry.task_id, f"its message cannot be read: {error!r}") from error
    if draft.is_canvas and changes.has_message:
        raise NotATask("task_id", entry.task_id, CANVAS)
    # Protocol 1 has its name in the body, by which it is routed.
    v1_s = (changes.expires, changes.queue) if draft.is_v1 else ()
    in_body = changes.has_arguments or any(part is not KEPT for part in v1_s)
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
