"""Keeps a beat process from sending the entries that are rules, so that both may be alive.

beat --an entry is due--> a rule of its name, set before that? --> not sent
"""

from __future__ import annotations

import math
from typing import Any

from celery import Celery
from celery.schedules import crontab

from ...core import clock
from ...core.errors import StoreError
from ...core.logs import logger_of
from ...core.services import Services, find
from .. import rule_store as store

AWAY = 30.0  # seconds without a question to a store that is away: beat would send too late

logger = logger_of(__name__)


def watch(app: Celery, scheduler: Any) -> None:
    """Put a guard into the scheduler of a beat process, if the app has a store."""
    services = find(app)
    if services is not None and services.has_store:
        Guard(services).watch(scheduler)


class Guard:
    """Keeps a beat process from sending the entries that are rules."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._known: set[str] = set()  # the rules, for as long as the store is away
        self._ask_at = -math.inf

    def watch(self, scheduler: Any) -> None:
        """Let a scheduler, of whatever class, ask before it sends an entry."""
        send = scheduler.apply_async

        def apply_async(entry: Any, *given: Any, advance: bool = True, **options: Any) -> Any:
            if not self.is_rule(entry):
                return send(entry, *given, advance=advance, **options)
            logger.info("%s is a rule of the store: beat does not send it", entry.name)
            if advance:
                scheduler.reserve(entry)
            return None

        scheduler.apply_async = apply_async

    def is_rule(self, entry: Any) -> bool:
        """Whether an entry that is due now is a rule, and this slot is the rule's."""
        slot = clock.utc_now()
        if isinstance(entry.schedule, crontab):
            slot = slot.replace(second=0, microsecond=0)
        if clock.monotonic() < self._ask_at:
            return entry.name in self._known
        try:
            found = store.find(self._services.entries, entry.name)
        except StoreError:
            self._ask_at = clock.monotonic() + AWAY
            return entry.name in self._known
        except (AttributeError, UnicodeError):  # beat takes any name
            return False
        is_one = (
            found is not None
            and not found.is_removed
            and not found.is_beats
            and found.since_ms <= store.ms_of(slot)
        )
        (self._known.add if is_one else self._known.discard)(entry.name)
        return is_one
