"""The head of each page: the app, its store, and whether tasks are delivered in time."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from ...core.clock import from_ms
from ...core.errors import DelayQError, StoreError
from .visit import Visit


class Header(NamedTuple):
    """What the head of a page says.

    Attributes:
        app: The app's name.
        store: The URL of its Redis, without secrets.
        problems: The sentences of ``health``; ``None`` if Redis is away.
        dead: How many tasks are dead.
        now: The time of the answer by Redis's clock; ``None`` if it is away.
    """

    app: str
    store: str
    problems: list[str] | None = None
    dead: int = 0
    now: datetime | None = None

    @property
    def state(self) -> str:
        """The health in words."""
        if self.problems is None:
            return "Redis is away"
        if not self.problems:
            return "Tasks are delivered in time"
        more = f" (and {len(self.problems) - 1} more)" if len(self.problems) > 1 else ""
        return f"{self.problems[0]}{more}"

    @property
    def alarm(self) -> str:
        """What is wrong in two words, for the title; empty if nothing is."""
        if self.problems is None:
            return "Redis is away"
        if self.dead:
            return f"{self.dead:,} dead"
        return "not delivered in time" if self.problems else ""


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
        problems = [*visit.delayq.health(), *(visit.unread() or ())]
    except StoreError:
        return facts
    except DelayQError as error:  # of the settings
        return facts._replace(problems=[str(error)])
    return facts._replace(problems=problems, dead=counts.dead, now=from_ms(counts.now_ms))
