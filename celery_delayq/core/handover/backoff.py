"""Pauses between attempts."""

from __future__ import annotations

from random import SystemRandom

LONGEST_BACKOFF = 3.0  # seconds between attempts to reach a Redis or a broker that is down
ELECTION = 1.0  # the same, if another server may take over at any moment
QUIET = 15.0  # seconds between two log lines about the same outage

random = SystemRandom()  # processes that C forked would have the same numbers from Python's own


class Backoff:
    """Doubling pauses with jitter, so that a hundred scanners do not come back at once.

    Args:
        first: The longest first pause, in seconds.
        longest: The longest pause, in seconds.
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
        """Return whether a failure is worth a log line.

        Pauses stay short, so a line for each failure would be too many. Lines about the same
        failure become as rare as if pauses went on doubling.

        Args:
            now: The time, by the monotonic clock.
            about: The kind of failure; a change of kind is always news.
        """
        if now < self._silent_until and about == self._about:
            return False
        self._about = about
        self._silent_until = now + min(QUIET, self._first * 2.0**self._failures / 2)
        return True

    def reset(self) -> None:
        self._failures = 0
        self._silent_until = 0.0
