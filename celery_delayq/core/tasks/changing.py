"""Changes of a waiting or dead task: cancel, reschedule and others.

arguments --> Removal, Move --> the store --> hooks, REVOKED --> Outcome

First what an edit can change, which ``operations/edits.py`` makes, and how a move is made of its
arguments, for one task or for many. Then the changes, each a method of ``DelayQ``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta, tzinfo
from typing import Any, Literal, TypedDict

from .. import clock
from ..clock import DelayInput, TimeInput, one_of
from ..errors import InvalidOption
from ..message.headers import warn_of_expiry
from ..services import HasServices, Services
from ..store import Change, Outcome
from ..store.changes import Move, Removal
from ..store.record import Tags
from .scheduled_task import Named, checked_revision, id_of, of_one_task, target_of


class Changes(TypedDict, total=False):
    """The values that an edit can change, as :func:`edits.edit` documents them; but the key."""

    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    priority: int | None
    expires: float | timedelta | datetime | str | None
    queue: str
    add_tags: Tags
    remove_tags: Tags
    task: str | Mapping[str, str]
    change: Callable[[Any, Any], tuple[Sequence[Any], Mapping[str, Any]] | None]


class ChangesOfOne(Changes, total=False):
    """The same, and the unique key, which only one task can have."""

    key: str | None


#: The ``only=`` of a reschedule: the direction in which a task may move.
Direction = Literal["earlier", "later"]


def move_of(
    zone: tzinfo,
    only: Direction | None,
    if_due: TimeInput | None,
    if_revision: int | None = None,
    **times: Any,
) -> Move:
    """Return a reschedule for the store; naive times are in *zone*.

    Args:
        zone: The app's time zone.
        only, if_due, if_revision: What must hold for a task to be moved.
        **times: ``at``, ``after`` and ``by``, of which one is given.

    Raises:
        InvalidOption: *only* is not a direction, or not one time is given.
        InvalidDueTime: a value is not a time.
    """
    when = one_of(zone, **times)
    if only not in (None, "earlier", "later"):
        raise InvalidOption("only", only, "'earlier' or 'later'")
    if_due_ms = None if if_due is None else clock.at(if_due, zone).ms
    return Move(when, only=only or "", if_due_ms=if_due_ms, revision=checked_revision(if_revision))


@of_one_task
def cancel(
    delayq: HasServices,
    task_id: Named | None = None,
    *,
    key: str | None = None,
    revoke: bool = False,
    if_revision: int | None = None,
) -> Outcome:
    """Remove a scheduled task; its result becomes ``REVOKED``.

    Args:
        task_id: The result of scheduling, a task that you read, or an id (text or UUID).
        key: The task's unique key, in place of *task_id*.
        revoke: If the task was or may have been delivered, tell the workers to drop it, like
            ``app.control.revoke``; with *task_id* only.
        if_revision: Cancel it only if this is still its ``revision``.

    Returns:
        ``Outcome.DONE``, the only true one; or why not. ``UNCHANGED``: it has another revision.
    """
    if revoke and key is not None:
        raise InvalidOption("revoke", revoke, "a task's id, as workers know no keys")
    services = delayq.services
    outcome = _remove(services, target_of(task_id, key), _removal(services, if_revision))
    if revoke and not outcome:
        services.forgo_undo([id_of(task_id)])
        arguments = {"task_id": id_of(task_id), "terminate": False}
        services.app.control.broadcast("revoke", arguments=arguments)
    return outcome


@of_one_task
def remove(
    delayq: HasServices,
    task_id: Named | None = None,
    *,
    key: str | None = None,
    if_revision: int | None = None,
) -> Outcome:
    """Delete a dead task, even an unreadable one; its result becomes ``REVOKED``.

    With *if_revision*, as for :meth:`cancel`, an unreadable task stays.

    Returns:
        ``Outcome.DONE``, the only true one; or why not. ``UNCHANGED``: it is not dead, or has
        another revision.

    Raises:
        UnreadableRecord: it cannot be read and is not dead yet; it becomes dead when it is due.
    """
    what = _removal(delayq.services, if_revision, only_dead=True)
    return _remove(delayq.services, target_of(task_id, key), what)


def withdraw(services: Services, task_id: str, *, if_revision: int) -> Outcome:
    """Cancel a task of which no undo is kept: what scheduled it would schedule it again."""
    what = replace(_removal(services, if_revision), undo=0)
    return _remove(services, target_of(task_id), what)


def _removal(services: Services, if_revision: int | None, *, only_dead: bool = False) -> Removal:
    owes, hears = services.has_backend, bool(services.hooks.hears_messages())
    return Removal(
        "caller" if owes else "none",
        tells=owes or hears,
        only_dead=only_dead,
        undo=services.settings.undo,
        revision=checked_revision(if_revision),
    )


def _remove(services: Services, who: bytes, what: Removal) -> Outcome:
    outcome, change = services.entries.change(who, what)
    if change.cancelled is not None:
        services.will_not_run([change.cancelled], owed=what.owes)
    else:
        services.hooks.missed("cancel", outcome)
    return outcome


@of_one_task
def reschedule(
    delayq: HasServices,
    task_id: Named | None = None,
    at: TimeInput | None = None,
    *,
    after: DelayInput | None = None,
    by: DelayInput | None = None,
    key: str | None = None,
    only: Direction | None = None,
    if_due: TimeInput | None = None,
    if_revision: int | None = None,
) -> Outcome:
    """Change the due time of a scheduled task; its id stays the same.

    Args:
        task_id: The result of scheduling, a task that you read, or an id (text or UUID).
        at: As for :meth:`schedule`.
        after: From now: a timedelta, or seconds.
        by: Relative to its current due time: a timedelta, or seconds; negative for earlier.
        key: The task's unique key, in place of *task_id*.
        only: ``"earlier"`` or ``"later"``: move the task only in this direction.
        if_due: Move it only if this is its due time, to the millisecond.
        if_revision: Move it only if this is still its ``revision``.

    Returns:
        ``Outcome.DONE``, the only true one; or why not. ``UNCHANGED``: *only*, *if_due* or
        *if_revision* does not hold. You can move a task past its own absolute ``expires``; the log
        then warns that no worker will run it.

    Raises:
        InvalidDueTime: not a time, or after 2255-06-05.
    """
    services = delayq.services
    what = move_of(services.timezone, only, if_due, if_revision, at=at, after=after, by=by)
    what = replace(what, undo=services.settings.undo)
    return move(services, target_of(task_id, key), what)[0]


@of_one_task
def run_now(
    delayq: HasServices,
    task_id: Named | None = None,
    *,
    key: str | None = None,
    if_revision: int | None = None,
) -> Outcome:
    """Deliver a task at once, even if it is paused or dead.

    It becomes due now, by Redis's clock. *if_revision* is as for :meth:`cancel`.

    Returns:
        ``Outcome.DONE``, the only true one; or why not. ``BEHIND``: it is due now, but waits behind
        the task that holds its key.
    """
    what = Move(mode="now", revision=checked_revision(if_revision))
    return move(delayq.services, target_of(task_id, key), what)[0]


@of_one_task
def retry(
    delayq: HasServices,
    task_id: Named | None = None,
    *,
    key: str | None = None,
    if_revision: int | None = None,
) -> Outcome:
    """Try to deliver a dead task again; it becomes due now.

    Args:
        task_id, key, if_revision: As for :meth:`cancel`.

    Returns:
        ``Outcome.DONE``, the only true one; or why not. ``UNCHANGED``: it is not dead, or has
        another revision.
    """
    what = Move(mode="retry", revision=checked_revision(if_revision))
    return move(delayq.services, target_of(task_id, key), what)[0]


def move(services: Services, who: bytes, what: Move) -> tuple[Outcome, Change]:
    """Move a task, and tell of it."""
    outcome, change = services.entries.change(who, what)
    if change.due_ms is not None:
        services.hooks.rescheduled(change.task_id, change.due_ms)
        warn_of_expiry([(change.task_id, change.due_ms, change.expires)])
    else:
        services.hooks.missed("reschedule", outcome)
    return outcome, change
