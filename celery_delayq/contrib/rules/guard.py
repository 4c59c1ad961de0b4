"""Keeps a beat process from sending the entries that are rules, so that both may be alive.

beat --an entry is due--> a rule of its name, set before that? --> not sent
"""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

from celery import Celery
from celery.beat import ScheduleEntry
from celery.schedules import crontab, schedule

from ...core import clock
from ...core.clock import EPOCH
from ...core.errors import StoreError
from ...core.services import Services, find
from ...core.text import logger_of
from .. import rule_store as store

NEAR = timedelta(milliseconds=100)  # so late beat may send a slot
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
        self._offsets: dict[str, timedelta] = {}  # from a rule's slots to its runs
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
            self._follow(scheduler, entry)
            return None

        scheduler.apply_async = apply_async

    def _follow(self, scheduler: Any, entry: Any) -> None:
        """Let beat ask at the slots of an interval's rule, and so send the ones after the last.

        An interval of beat counts from the last run. A removed rule would else leave a gap of up to
        two intervals.
        """
        ours: Any = getattr(scheduler, "schedule", {}).get(entry.name)
        offset = self._offsets.get(entry.name)
        if type(ours) is not ScheduleEntry or type(ours.schedule) is not schedule or offset is None:
            return
        late = (ours.last_run_at - EPOCH - offset) % ours.schedule.run_every
        ours.last_run_at -= late
        if late > NEAR:
            scheduler._heap = None  # beat computes anew when its entries are due

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
        if is_one and found is not None:
            self._offsets[entry.name] = found.offset
        return is_one
