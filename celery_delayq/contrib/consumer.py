"""Store queries that a worker makes while it receives a message.

The worker's other messages wait meanwhile. So a query has a short timeout, and after a failure the
worker makes no query for a while.

Worker strategies: a hook that sees each message before the worker accepts its task.

Calls a function in a worker's loop when another thread asks for it.

The oldest kombu's hub cannot be called from another thread, so a pipe wakes it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

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


#: A worker's handler for the messages of one task: ``strategy(message, body, ack, …)``.
Strategy = Callable[..., Any]


def wrap_strategies(consumer: Any, wrap: Callable[[Strategy], Strategy]) -> None:
    """Replace each strategy of a worker's consumer with ``wrap(strategy)``."""
    plain = consumer.update_strategies

    def update_strategies() -> None:
        plain()
        for name, strategy in consumer.strategies.items():
            consumer.strategies[name] = wrap(strategy)

    consumer.update_strategies = update_strategies


class Waker:
    """A way into a worker's loop, if that has a hub.

    Args:
        call: The function; an exception of it would end the worker.
    """

    def __init__(self, call: Callable[[], object]) -> None:
        self._call = call
        self._hub: Any = None
        self._pipe: tuple[int, int] | None = None

    @property
    def is_there(self) -> bool:
        return self._pipe is not None

    def listen(self, hub: Any) -> None:
        """Listen in a loop that begins, until it is over or :meth:`close` is called."""
        self.close()
        self._hub, self._pipe = hub, os.pipe()
        for end in self._pipe:
            os.set_blocking(end, False)
        hub.add_reader(self._pipe[0], self._heard)

    def wake(self) -> None:
        """Let the function be called soon; from any thread."""
        pipe = self._pipe
        if pipe is None:
            return
        try:
            os.write(pipe[1], b"\0")
        except OSError as error:  # full, so it is awake; or closed
            logger.debug("the worker's loop was not woken: %s", error)

    def close(self) -> None:
        pipe, self._pipe = self._pipe, None
        if pipe is not None:
            self._hub.remove(pipe[0])
            for end in pipe:
                os.close(end)

    def _heard(self, *_: Any) -> None:
        pipe = self._pipe
        if pipe is not None:
            os.read(pipe[0], 4096)
        self._call()
