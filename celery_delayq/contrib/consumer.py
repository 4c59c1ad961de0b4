"""How a leaf sees a message before a worker accepts its task, and calls into the worker's loop.

    message --> the door: putoff, copies, adoption look at it, in this order --> its task's strategy
                             | one takes it
                             +--> it goes no further

The worker's other messages wait meanwhile. So a query of the store has a short timeout, and after a
failure the worker makes no query for a while.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from ..core import clock
from ..core.errors import DelayQError
from ..core.text import logger_of

logger = logger_of(__name__)

#: What a leaf does first, with a message, its body, and the function that acknowledges it; it
#: returns whether it has taken the message.
Look = Callable[[Any, Any, Any], bool]

_ORDER = ("putoff", "copies", "adoption")


def look_first(consumer: Any, leaf: str, look: Look) -> None:
    """Let a leaf look at each message of a worker's consumer before its task gets it."""
    looks: dict[str, Look] | None = vars(consumer).get("delayq_looks")
    if looks is None:
        looks = consumer.delayq_looks = {}
        consumer.update_strategies = partial(_update, consumer, consumer.update_strategies, looks)
    looks[leaf] = look


def _update(consumer: Any, plain: Callable[[], object], looks: dict[str, Look]) -> None:
    plain()
    in_order = [looks[leaf] for leaf in sorted(looks, key=_ORDER.index)]
    for name, strategy in consumer.strategies.items():
        consumer.strategies[name] = _behind(in_order, strategy)


def _behind(looks: Sequence[Look], strategy: Callable[..., Any]) -> Callable[..., Any]:
    def received(message: Any, body: Any, ack: Any, *rest: Any) -> Any:
        for look in looks:
            if look(message, body, ack):
                return None
        return strategy(message, body, ack, *rest)

    return received


def queue_by_tag(consumer: Any, message: Any) -> str | None:
    """Return the queue whose messages have this one's consumer tag; ``None`` if it has none."""
    tag = (message.delivery_info or {}).get("consumer_tag")
    return next((queue for queue, own in tags_of(consumer).items() if own == tag), None)


def tags_of(consumer: Any) -> dict[str, Any]:
    """Return the queues that a worker consumes from, each with its consumer tag."""
    tags: dict[str, Any] = getattr(consumer.task_consumer, "_active_tags", {})
    return tags


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


class Waker:
    """Calls a function in a worker's loop, if that has a hub, when another thread asks for it.

    The oldest kombu's hub cannot be called from another thread, so a pipe wakes it.

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
