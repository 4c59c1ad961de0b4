"""A worker's messages, as leaves see them: before their tasks do, and on the way into the store.

    message --> the door: putoff, copies, adoption look at it, in this order --> its task's strategy
                             | one takes it
                             +--> it goes no further

The worker's other messages wait meanwhile. So a query of the store has a short timeout, and after a
failure the worker makes no query for a while.

Then how a leaf calls into the worker's loop; where a message came from; how it becomes an entry;
and the room for others meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from kombu import Message

from ..core import clock
from ..core.errors import DelayQError
from ..core.message.body import serializer_of
from ..core.message.headers import DUE_HEADER, REDELIVERED_HEADER, foreign
from ..core.message.outgoing import recorded
from ..core.scheduling.intercept import ONCE, Interceptor, Request
from ..core.scheduling.options import PREFIX
from ..core.scheduling.writing import Ready
from ..core.store import checked_id
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


KEEP = 5.0  # seconds for which an exchange's bindings are cached
MOST = 1000  # cached pairs of exchange and routing key

# kombu's fanouts are no lists in Redis, so no worker would take a message out of one.
_LISTS = ("direct", "topic")


class Queues:
    """Finds the queue that a message came from; an exchange may lead to several."""

    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer
        self._found: dict[tuple[str, str], tuple[str | None, float]] = {}

    def of(self, message: Any) -> str | None:
        """Return the queue of a received message; ``None`` if it is not certain."""
        info = message.delivery_info or {}
        if info.get("consumer_tag") is not None:
            return queue_by_tag(self._consumer, message)
        exchange, key = info.get("exchange") or "", info.get("routing_key")
        if exchange:
            key = self._bound(message.channel, exchange, key)
        return key if key in tags_of(self._consumer) else None

    def _bound(self, channel: Any, exchange: str, key: Any) -> str | None:
        now = clock.monotonic()
        queue, until = self._found.get((exchange, key), (None, 0.0))
        if now >= until:
            queue = _only_queue(channel, exchange, key)
            if len(self._found) >= MOST:
                self._found.clear()
            self._found[exchange, key] = queue, now + KEEP
        return queue


def _only_queue(channel: Any, exchange: str, key: Any) -> str | None:
    try:
        kind = channel.typeof(exchange, None)  # one that this worker has declared
        found = set(kind.lookup(channel.get_table(exchange), exchange, key, None))
    except Exception:
        return None
    return found.pop() if len(found) == 1 and kind.type in _LISTS else None


# Properties of a message's delivery.
_OF_THE_WAY = ("delivery_info", "delivery_tag", "body_encoding", "expiration")
# Properties of AMQP that kombu keeps apart from the others.
_APART = ("application_headers", "content_type", "content_encoding")


def is_own(name: str) -> bool:
    """Whether a property of a message is an option of this package."""
    return name.startswith(PREFIX)


def entry_of(
    interceptor: Interceptor,
    message: Message,
    request: Request,
    *,
    queue: str | None = None,
    headers: Mapping[str, Any] | None = None,
) -> Ready:
    """Make the entry of a message that a broker delivered, without writing it.

    Args:
        interceptor: Makes the entry.
        message: The message; its eta is left out.
        request: The requested time and terms.
        queue: The queue to deliver to, past any exchange; by default, its own destination.
        headers: Further headers.

    Raises:
        DelayQError: the message cannot be scheduled.
    """
    properties = {
        name: value
        for name, value in message.properties.items()
        if not is_own(name) and name not in (*_OF_THE_WAY, *_APART)
    }
    body, content = _without_eta(message)
    all_headers = {**foreign(message.headers), **(headers or {})}
    if message.headers.get(REDELIVERED_HEADER):
        all_headers[REDELIVERED_HEADER] = True
    if "task" in all_headers:
        all_headers["eta"] = None
    exchange = "" if queue else message.delivery_info.get("exchange") or ""
    routing_key = queue or message.delivery_info["routing_key"]
    declared = None if exchange else interceptor.services.app.amqp.queues.get(routing_key)
    task_id = checked_id(properties["correlation_id"])
    outgoing = recorded(
        interceptor.producer,
        body,
        exchange=exchange,
        routing_key=routing_key,
        declare=[declared] if declared is not None else [],
        # kombu has decompressed the body, if it can.
        compression=None if message.errors else all_headers.pop("compression", None),
        headers=all_headers,
        **content,
        **properties,
    )
    return interceptor.entry(outgoing, request, task_id, ONCE)


def _without_eta(message: Message) -> tuple[Any, dict[str, Any]]:
    """The body of a received message, and its content type or serializer."""
    # A message of protocol 2 has its eta in the headers, and one from the store has none.
    if "task" in message.headers or DUE_HEADER in message.headers:
        content = {"content_type": message.content_type}
        return message.body, {**content, "content_encoding": message.content_encoding}
    return {**message.payload, "eta": None}, {"serializer": serializer_of(message.content_type)}


def never(*_: Any, **__: Any) -> None:
    """Stands for Celery's sending in a sender that never sends."""


class Room:
    """Makes room for other messages while some wait for the store, as Celery does for an eta.

    Args:
        consumer: The worker's consumer.
    """

    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer
        self._raised = 0

    def begin(self) -> None:
        """Begin on a new connection, whose prefetch count nobody has raised."""
        self._raised = 0

    def make(self, waiting: int) -> None:
        """Raise the prefetch count, if so many messages wait."""
        qos = self._consumer.qos
        # Each change is a round trip, so not for every message. A larger step would never come: no
        # more messages wait than were let in, and those are so many above the raised ones.
        step = max(1, self._consumer.initial_prefetch_count // 2)
        if getattr(qos, "max_prefetch", None) is None and waiting - self._raised >= step:
            qos.increment_eventually(waiting - self._raised)
            self._raised = waiting

    def give_back(self, waiting: int) -> None:
        """Lower it, if only so many are left."""
        qos = self._consumer.qos
        if self._raised > waiting:
            qos.decrement_eventually(self._raised - waiting)
            self._raised = waiting
            # Before the acknowledgements, which let as many others in.
            if qos.prev != qos.value:
                qos.update()
