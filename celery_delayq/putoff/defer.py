"""``Defer``: what a running task raises to be put off."""

from __future__ import annotations

from datetime import timezone, tzinfo

from celery.exceptions import TaskPredicate

from ..clock import DelayInput, TimeInput, When, one_of
from ..errors import InvalidOption


class Defer(TaskPredicate):
    """Raised in a task, it puts the task off: it runs again, under its id, at another time.

    No retry is counted, and nothing of it fails. ``self.defer(after=5)`` makes one as well.

    Args:
        after: A timedelta, or seconds from now.
        at: A time, instead; see ``delay_until``.

    Raises:
        InvalidOption: neither or both are given.
        InvalidDueTime: it is not a time, or past 2255-06-05.
    """

    def __init__(self, after: DelayInput | None = None, at: TimeInput | None = None) -> None:
        super().__init__(after, at)
        if (after is None) == (at is None):
            raise InvalidOption("time", self.args, "exactly one of after and at")
        self.when(timezone.utc)

    def when(self, zone: tzinfo) -> When:
        """When that is; a naive time is read in *zone*."""
        after, at = self.args
        return one_of(zone, after=after, at=at)

    def __str__(self) -> str:
        return (
            "raised where no task is put off: a worker catches Defer around a task's own code, if "
            "its app has a DelayQ"
        )
