"""The head of each page: the app, its store, and whether tasks are delivered in time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from ...core.clock import from_ms
from ...core.errors import DelayQError, StoreError
from ...operations.health import judged
from .visit import Visit


class Header(NamedTuple):
    """What the head of a page says.

    Attributes:
        app: The app's name.
        store: The URL of its Redis, without secrets.
        problems: The sentences of ``health``; ``None`` if Redis is away.
        paused: Its sentences on pauses that are no problem.
        dead: How many tasks are dead.
        now: The time of the answer by Redis's clock; ``None`` if it is away.
    """

    app: str
    store: str
    problems: list[str] | None = None
    paused: Sequence[str] = ()
    dead: int = 0
    now: datetime | None = None

    @property
    def state(self) -> str:
        """The health in words."""
        if self.problems is None:
            return "Redis is away"
        first, *rest = [*self.problems, *self.paused] or ["Tasks are delivered in time"]
        more = f" (and {len(rest)} more)" if rest else ""
        return f"{first}{more}"

    @property
    def alarm(self) -> str:
        """What is wrong in two words, for the title; empty if nothing is."""
        if self.problems is None:
            return "Redis is away"
        if self.dead:
            return f"{self.dead:,} dead"
        if self.problems:
            return "not delivered in time"
        return "paused" if self.paused else ""

    @property
    def look(self) -> str:
        """The class of its style."""
        if self.problems or self.problems is None:
            return "problems"
        return "paused" if self.paused else "well"


def header(visit: Visit, *, is_away: bool) -> Header:
    """Return the head of a page.

    Args:
        visit: The visit.
        is_away: Redis did not answer a moment ago, so it is not asked again.
    """
    services = visit.delayq.services
    facts = Header(services.app.main or "Celery", "")
    try:
        facts = facts._replace(store=services.endpoint.url)
        if is_away:
            return facts
        counts = visit.delayq.counts()
        checks = judged(services)
        problems = [check.wrong for check in checks if check.wrong] + (visit.unread() or [])
        paused = [check.note for check in checks if check.note]
    except StoreError:
        return facts
    except DelayQError as error:  # of the settings
        return facts._replace(problems=[str(error)])
    return facts._replace(
        problems=problems, paused=paused, dead=counts.dead, now=from_ms(counts.now_ms)
    )
