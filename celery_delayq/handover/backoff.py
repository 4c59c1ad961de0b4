"""Pauses between tries."""

from __future__ import annotations

import random

LONGEST_BACKOFF = 30.0  # seconds between tries to reach a Redis or a broker that is away


class Backoff:
    """Doubling pauses with jitter, so that a hundred scanners do not come back as one."""

    def __init__(self, first: float = 0.5) -> None:
        self._first = first
        self._failures = 0

    def next(self) -> float:
        pause = min(LONGEST_BACKOFF, self._first * 2.0**self._failures)
        self._failures = min(self._failures + 1, 10)
        return pause * random.uniform(0.5, 1.0)

    def reset(self) -> None:
        self._failures = 0
