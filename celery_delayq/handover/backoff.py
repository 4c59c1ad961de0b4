"""Pauses between tries."""

from __future__ import annotations

import random

LONGEST_BACKOFF = 3.0  # seconds between tries to reach a Redis or a broker that is away
ELECTION = 1.0  # the same, where another may take over at any moment
QUIET = 15.0  # seconds between two lines of the log about the same outage


class Backoff:
    """Doubling pauses with jitter, so that a hundred scanners do not come back as one.

    Args:
        first: Seconds of the first pause, at most.
        longest: Seconds of any.
    """

    def __init__(self, first: float = 0.5, longest: float = LONGEST_BACKOFF) -> None:
        self._first = first
        self._longest = longest
        self._failures = 0
        self._silent_until = 0.0
        self._about: object = None

    def next(self) -> float:
        pause = min(self._longest, self._first * 2.0**self._failures)
        self._failures = min(self._failures + 1, 10)
        return pause * random.uniform(0.5, 1.0)

    def is_news(self, now: float, about: object = None) -> bool:
        """Whether a failure is worth a line in the log.

        Pauses stay short, so every failure would be a line. Of the same trouble, lines become as
        rare as pauses that went on doubling.

        Args:
            now: The time, by the monotonic clock.
            about: The trouble; another one than the last is always news.
        """
        if now < self._silent_until and about == self._about:
            return False
        self._about = about
        self._silent_until = now + min(QUIET, self._first * 2.0**self._failures / 2)
        return True

    def reset(self) -> None:
        self._failures = 0
        self._silent_until = 0.0
