"""Store queries that a worker makes while it receives a message.

The worker's other messages wait meanwhile. So a query has a short timeout, and after a failure the
worker makes no query for a while.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ..core import clock
from ..core.errors import DelayQError
from ..core.text import logger_of

logger = logger_of(__name__)

ANSWER_WITHIN = 0.5  # seconds that the store may take; about fifty times the usual
ASK_AGAIN = 5.0  # seconds without queries after a failure

T = TypeVar("T")


class StoreQuery:
    """Queries the store about messages, for one worker.

    Args:
        unknown: The log's text for a message whose query failed.
    """

    def __init__(self, unknown: str) -> None:
        self._unknown = unknown
        self._ask_from = 0.0

    def ask(self, task_id: str, question: Callable[[float], T], otherwise: T) -> T:
        """Return *question*'s answer, given its deadline; *otherwise* if the store is down."""
        now = clock.monotonic()
        if now < self._ask_from:
            return otherwise
        try:
            return question(now + ANSWER_WITHIN)
        except DelayQError as error:
            self._ask_from = clock.monotonic() + ASK_AGAIN
            logger.warning("task %s: %s: %s", task_id, self._unknown, error)
            return otherwise
