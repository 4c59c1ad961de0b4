"""Cancel and reschedule a task that waits."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from ..clock import When
from ..errors import StoreError
from ..revoked import has_backend, tell
from ..services import Services
from ..store import Outcome
from .targets import Named, id_of, target_of

#: Argument of the workers' command `revoke`: when it was told, in ms by Redis's clock.
TOLD = "delayq_told"


def cancel(services: Services, task_id: Named, *, revoke: bool = False) -> Outcome:
    """Remove a scheduled task; its result becomes ``REVOKED``.

    With *revoke*, workers are told to drop it where it has left already, or may have.
    """
    who = target_of(task_id)
    owes = has_backend(services.app)
    outcome, cancelled = services.entries.cancel_owing(who, owes=owes)
    if cancelled is not None:
        tell(services, [cancelled], owed=owes)
    if revoke and not outcome:
        _tell_workers(services, id_of(task_id))
    return outcome


def _tell_workers(services: Services, task_id: str) -> None:
    arguments: dict[str, Any] = {"task_id": task_id, "terminate": False}
    with suppress(StoreError):
        # Another task may be scheduled under the id before they hear of it.
        arguments[TOLD] = services.entries.counts().now_ms
    services.app.control.broadcast("revoke", arguments=arguments)


def reschedule(services: Services, task_id: Named, when: When) -> tuple[Outcome, int | None]:
    """Give a scheduled task another due time; also returns it, in ms, where that was done."""
    outcome, due_ms = services.entries.reschedule(target_of(task_id), when)
    if due_ms is not None:
        services.hooks.rescheduled(id_of(task_id), due_ms)
    return outcome, due_ms
