"""``Defer``: the exception with which a running task puts itself off."""

from __future__ import annotations

from datetime import timezone, tzinfo

from celery.exceptions import TaskPredicate

from ...core.errors import InvalidOption
from ..clock import DelayInput, TimeInput, When, one_of


class Defer(TaskPredicate):
    """Puts off the task that raises it: the task runs again, with its id, at another time.

    This does not count as a failure or a retry. ``self.defer(after=5)`` creates one as well.

    Args:
        after: A timedelta, or seconds from now.
        at: A time, instead; see ``delay_until``.

    Raises:
        InvalidOption: neither or both are given.
        InvalidDueTime: the value is not a time, or past 2255-06-05.
    """

    __module__ = "celery_delayq"  # as pickles name it

    def __init__(self, after: DelayInput | None = None, at: TimeInput | None = None) -> None:
        super().__init__(after, at)
        if (after is None) == (at is None):
            raise InvalidOption("time", self.args, "exactly one of after and at")
        self.when(timezone.utc)

    def when(self, zone: tzinfo) -> When:
        """Return the time of the next run; a naive one is read in *zone*."""
        after, at = self.args
        return one_of(zone, after=after, at=at)

    def __str__(self) -> str:
        return (
            "Defer was not caught; a worker catches it around a task's own code if its app has a "
            "DelayQ"
        )
