"""Change a task that waits, or is dead: cancel, reschedule, run now, retry, remove."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from .. import clock
from ..clock import TimeInput, When, from_ms
from ..errors import InvalidDueTime, InvalidOption
from ..logs import logger_of
from ..revoked import has_backend, tell
from ..services import Services
from ..store import NOW, Outcome
from .targets import Named, id_of, who_is

logger = logger_of(__name__)

_LAPSED = "task %s: due at %s, but expires at %s: no worker will run it%s"

#: What a move may do: ``only=`` of a reschedule.
Direction = Literal["earlier", "later"]


def cancel(
    services: Services,
    task_id: Named | None = None,
    *,
    key: str | None = None,
    revoke: bool = False,
) -> Outcome:
    """Remove a scheduled task; its result becomes ``REVOKED``.

    With *revoke*, workers are told to drop it where it has left already, or may have.
    """
    if revoke and key is not None:
        raise InvalidOption("revoke", revoke, "a task's id with it: workers know no keys")
    outcome = _remove(services, task_id, key)
    if revoke and not outcome:
        arguments = {"task_id": id_of(task_id), "terminate": False}
        services.app.control.broadcast("revoke", arguments=arguments)
    return outcome


def remove(services: Services, task_id: Named | None = None, *, key: str | None = None) -> Outcome:
    """Delete a task that is dead; its result becomes ``REVOKED``."""
    return _remove(services, task_id, key, remove=True)


def _remove(
    services: Services, task_id: Named | None, key: str | None, *, remove: bool = False
) -> Outcome:
    owes, hears = has_backend(services.app), services.hooks.hears_messages()
    outcome, cancelled = services.entries.cancel(
        who_is(services, task_id, key), owes=owes, tells=owes or hears, remove=remove
    )
    if cancelled is not None:
        tell(services, [cancelled], owed=owes)
    else:
        services.hooks.missed("cancel", outcome)
    return outcome


def reschedule(
    services: Services,
    task_id: Named | None,
    when: When,
    *,
    key: str | None = None,
    only: Direction | None = None,
    if_due: TimeInput | None = None,
) -> tuple[Outcome, int | None]:
    """Give a scheduled task another due time; also returns it, in ms, where that was done."""
    return _move(services, task_id, key, when, **conditions(services, only, if_due))


def run_now(
    services: Services, task_id: Named | None = None, *, key: str | None = None
) -> tuple[Outcome, int | None]:
    """Let a task go at once, also through a pause."""
    return _move(services, task_id, key, NOW, mode="now")


def retry(
    services: Services, task_id: Named | None = None, *, key: str | None = None
) -> tuple[Outcome, int | None]:
    """Try the hand-over of a dead task again, at once."""
    return _move(services, task_id, key, NOW, mode="retry")


def _move(
    services: Services, task_id: Named | None, key: str | None, when: When, **how: Any
) -> tuple[Outcome, int | None]:
    outcome, change = services.entries.move(who_is(services, task_id, key), when, **how)
    if change.due_ms is not None:
        services.hooks.rescheduled(change.task_id, change.due_ms)
        tell_of_expiry(services, [(change.task_id, change.due_ms, change.expires)])
    else:
        services.hooks.missed("reschedule", outcome)
    return outcome, change.due_ms


def tell_of_expiry(services: Services, tasks: Iterable[tuple[str, int, str]]) -> None:
    """Log which of some tasks expire before they are due, as workers will drop them.

    Args:
        services: Of their app.
        tasks: Of each its id, its due time in ms, and when it expires, as its message says it.
    """
    lapsed = [one for one in tasks if _expires_first(services, *one[1:])]
    if lapsed:
        (task_id, due_ms, expires), more = lapsed[0], len(lapsed) - 1
        expiry = from_ms(clock.to_ms(expires, services.timezone)).isoformat()
        rest = f"; so it is with {more} more" if more else ""
        logger.warning(_LAPSED, task_id, from_ms(due_ms).isoformat(), expiry, rest)


def _expires_first(services: Services, due_ms: int, expires: str) -> bool:
    try:
        return bool(expires) and clock.to_ms(expires, services.timezone) <= due_ms
    except InvalidDueTime:
        return False  # what no worker can read either


def conditions(
    services: Services, only: Direction | None, if_due: TimeInput | None
) -> dict[str, Any]:
    """The conditions of a reschedule, as the store takes them.

    Raises:
        InvalidOption: *only* is no direction.
        InvalidDueTime: *if_due* is not a time.
    """
    if only not in (None, "earlier", "later"):
        raise InvalidOption("only", only, "'earlier' or 'later'")
    if_due_ms = None if if_due is None else clock.at(if_due, services.timezone).ms
    return {"only": only or "", "if_due_ms": if_due_ms}
