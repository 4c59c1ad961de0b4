"""Adds an event of a pause, or of a change of many tasks, to the history."""

from __future__ import annotations

from contextlib import suppress

from ..errors import StoreError
from ..services import Services
from ..store import What


def note(services: Services, what: What, *, lane: str = "", count: int = 0) -> None:
    """Add the event, if a history is kept; the change is done, so no error is raised.

    Args:
        services: The app's.
        what: The kind of the event.
        lane: ``q`` or ``t``, and the name of the queue or task that was paused or resumed.
        count: How many tasks were changed; 0 of a pause.
    """
    if services.settings.history:
        with suppress(StoreError):
            services.entries.note(what, lane=lane, count=count)
