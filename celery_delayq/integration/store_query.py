"""A question to the store about a message that is being received.

What is received by one process waits behind it. So it is given little time, and none is asked for a
while after one had no answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from .. import clock
from ..errors import DelayQError
from ..logs import logger_of

logger = logger_of(__name__)

ANSWER_WITHIN = 0.5  # seconds that the store may take; some fifty times what it does
ASK_AGAIN = 5.0  # seconds for which it is not asked after it did not answer

T = TypeVar("T")


class StoreQuery:
    """Asks the store about messages; of one worker.

    ``unknown``: what the log says of a message that the store did not tell of.
    """

    def __init__(self, unknown: str) -> None:
        self._unknown = unknown
        self._ask_from = 0.0

    def ask(self, task_id: str, question: Callable[[float], T], otherwise: T) -> T:
        """What *question* answers, which is told when to give up; *otherwise* where it is away."""
        now = clock.monotonic()
        if now < self._ask_from:
            return otherwise
        try:
            return question(now + ANSWER_WITHIN)
        except DelayQError as error:
            self._ask_from = clock.monotonic() + ASK_AGAIN
            logger.warning("task %s: %s: %s", task_id, self._unknown, error)
            return otherwise
