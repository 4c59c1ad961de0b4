"""What a test is told that asks for what cannot be."""

from __future__ import annotations

from datetime import timedelta

from ...errors import DelayQError


class CannotIsolate(DelayQError):
    """There is no store for the test, or its app is isolated already."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why

    def sentence(self) -> str:
        return self.why


class ClockGoesBack(DelayQError, ValueError):
    """A test's clock was to be put back."""

    def __init__(self, by: timedelta) -> None:
        super().__init__(by)
        self.by = by

    def sentence(self) -> str:
        return (
            f"advance() was given {self.by.total_seconds():g} seconds; time goes forward only: "
            "begin another test, or schedule for a later time"
        )


class EndlessTasks(DelayQError):
    """After many tasks there are still some due; perhaps one schedules itself again at once."""

    def __init__(self, limit: int, last: str) -> None:
        super().__init__(limit, last)
        self.limit = limit
        self.last = last

    def sentence(self) -> str:
        return (
            f"run_due() ran {self.limit} tasks, the last of them {self.last}, and more are due: "
            "does one send itself again at once? If not, give run_due a higher limit"
        )
