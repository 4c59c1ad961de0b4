"""Edits a waiting task.

read the entry --> build the new message --> replace it, if it is unchanged
      ^                                             |
      +---------- changed meanwhile ----------------+
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from ..core import clock
from ..core.errors import StoreUnavailable
from ..core.message.headers import warn_of_expiry
from ..core.services import HasServices, Services
from ..core.store import Outcome
from ..core.store.changes import Rewrite
from ..core.store.record import NewRecord, Tags
from ..core.tasks.scheduled_task import Named, checked_revision, of_one_task, target_of
from .edits import KEPT, Edit, edited


@of_one_task
def edit(
    delayq: HasServices,
    task_id: Named | None = None,
    *,
    key: str | None = KEPT,
    args: Sequence[Any] = KEPT,
    kwargs: Mapping[str, Any] = KEPT,
    priority: int | None = KEPT,
    expires: float | timedelta | datetime | str | None = KEPT,
    queue: str = KEPT,
    add_tags: Tags = (),
    remove_tags: Tags = (),
    if_revision: int | None = None,
) -> Outcome:
    """Change the arguments, priority, expiry, queue, key or tags of a scheduled task.

    Everything else stays as it is: the message keeps its serializer, compression, headers and
    links. It is only routed again if you pass a queue, and Celery sends no signal.

    Args:
        task_id: The result of scheduling, a task that you read, or an id (text or UUID).
        key: Beside *task_id*, its new unique key; ``None``: it has none from now on. The key holds
            as long as the one before, or while the task waits. Without *task_id*, the key that
            names the task.
        args: All positional arguments. An ``argsrepr`` that the caller set stays.
        kwargs: All keyword arguments.
        priority: 0 to 255, as the broker defines it; ``None``: the broker's default.
        expires: Seconds after the due time, or a timedelta; a time, as a datetime or ISO 8601
            text, if naive in the app's time zone; ``None``: never.
        queue: The name of the queue to send it to, as for ``apply_async``; your ``task_routes``
            apply.
        add_tags: Tags that it gets; it then has up to 16.
        remove_tags: Tags that it loses, if it has them.
        if_revision: Edit the task only if this is still its ``revision``.

    Returns:
        ``Outcome.DONE``, the only true one; or why not. ``UNCHANGED``: it has another revision.

    Raises:
        InvalidOption: no value is given, or an invalid one; the task's current arguments cannot
            be read; it is a canvas (``NotATask``), of which only key and tags can change; the queue
            does not exist; or the new key belongs to another of several shards.
        AlreadyScheduled: another task waits under the new key; nothing was changed. ``KeyHeld``:
            it has left, and still holds the key.
        TypeError: the arguments do not fit the task.
        MessageTooLarge: the new message is larger than ``delayq_max_message``.
    """
    named = key if task_id is None and key is not KEPT else None
    new_key = KEPT if task_id is None else key
    services = delayq.services
    changes = Edit(args, kwargs, priority, expires, queue, new_key, add_tags, remove_tags)
    return apply(services, target_of(task_id, named), changes, if_revision)


def apply(services: Services, who: bytes, changes: Edit, if_revision: int | None = None) -> Outcome:
    """Make an edit; see :func:`edit`.

    Args:
        services: The app's.
        who: The task, as :func:`target_of` returns it.
        changes: The edit.
        if_revision: The revision that it must have.
    """
    checked_revision(if_revision)
    outcome = _edit(services, who, changes, if_revision)
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
            what = Rewrite(None, NewRecord(b"", b"", b""))
        else:
            new, expires = edited(services, entry, changes)
            what = Rewrite(entry.record, new)
        outcome, _ = services.entries.change(who, what)
        if entry is not None and outcome in (Outcome.DONE, Outcome.UNCERTAIN):
            services.hooks.edited(entry.task_id)
            warn_of_expiry([(entry.task_id, entry.due_ms, expires)])
        if outcome is not Outcome.UNCHANGED or if_revision is not None:
            return outcome
        if clock.monotonic() >= until:
            raise StoreUnavailable("edit", "other processes keep changing the same task", False)
