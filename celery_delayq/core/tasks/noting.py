"""Adds an event of a pause to the history."""

from __future__ import annotations

from contextlib import suppress

from ..errors import StoreError
from ..services import Services
from ..store import What


def note(services: Services, what: What, lane: str) -> None:
    """Add the event, if a history is kept; the change is done, so no error is raised.

    Args:
        services: The app's.
        what: The kind of the event.
        lane: ``q`` or ``t``, and the name of the queue or task that was paused or resumed; empty
            for everything.
    """
    if services.settings.history:
        with suppress(StoreError):
            services.entries.note(what, lane)
