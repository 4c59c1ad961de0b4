"""A worker drops the second copy of a task that was relayed, where ``delayq_once`` says so.

    message --> relayed? --> guarded? --> which attempt was here first? --> this one: runs
                  | no          | no        | the store is away               another: dropped
                  +--- runs ----+--- runs --+

A relay publishes first and acknowledges second, so a task may be published more than once. Each
time is another attempt at the same hand-over, and the one that is at a worker first is the one that
runs, whichever it is. The broker may deliver that one again, because its worker died; then it has
the same attempt, and passes, as it may be the only copy.

It is asked when a message is received, in the worker's main process, and not when its task starts:

- A child can drop a task no more without a trace: by then it was announced, may have been
  acknowledged, and have ``STARTED`` in the result backend. And each child needed a connection.
- What is received and not acknowledged yet is safe with the broker. A worker that dies between mark
  and run leaves it to be delivered again, as the attempt that is marked.
- What is acknowledged before it runs (Celery's default) is lost with its worker, as it is without
  a second copy. ``acks_late`` is what helps there.

A copy may so be dropped while the first one waits in a busy worker; it will run there.

Whatever the setting, it drops what became an entry of the store when it was delivered before, as
the task put itself off:

    message --> delivered before? --yes--> became an entry? --yes--> dropped
                      | no                     | no, or the store is away
                      +--- runs ---------------+
"""

from __future__ import annotations

from typing import Any, NamedTuple

from celery import bootsteps

from ..integration.store_query import ASK_AGAIN, StoreQuery
from ..integration.strategies import Strategy, wrap_strategies
from ..libraries import Feature, works
from ..logs import logger_of
from ..message.headers import ATTEMPT_HEADER, HAND_OVER_HEADER, ONCE_HEADER
from ..message.identity import identity_of, may_come_again
from ..services import Services, find

logger = logger_of(__name__)

MOST_ATTEMPTS = 2**31  # a number past that is none of ours

_DROPPED = "task %s: attempt %d is dropped, as attempt %d was at a worker first"
_UNKNOWN = f"runs, as all will for {ASK_AGAIN:.0f} s, be it a second copy or not"
_TAKEN = "task %s: dropped, as it was put off when this message was delivered before"


class _Copy(NamedTuple):
    """A relayed message: which attempt at which hand-over of which task, out of which queue."""

    task_id: str
    hand_over: str
    queue: str
    attempt: int


class GuardingStep(bootsteps.Step):
    """Lets a worker's consumer drop second copies, and what was put off already."""

    def __init__(self, consumer: Any, **_: Any) -> None:
        services = find(consumer.app)
        if services is not None and works(Feature.ONCE):
            guard = Guard(services, consumer)
            wrap_strategies(consumer, guard.guarding)


class Guard:
    """Asks the store about what is received; of one worker."""

    def __init__(self, services: Services, consumer: Any) -> None:
        self._services = services
        self._consumer = consumer
        self._asking = StoreQuery(_UNKNOWN)

    def guarding(self, strategy: Strategy) -> Strategy:
        """*strategy*, which is not given what has been dealt with."""

        def received(message: Any, body: Any, ack: Any, *rest: Any) -> Any:
            if self._is_second(message) or self._is_taken(message):
                return ack(logger, self._consumer.connection_errors)
            return strategy(message, body, ack, *rest)

        return received

    def _is_second(self, message: Any) -> bool:
        copy = self._copy_of(message) if ATTEMPT_HEADER in message.headers else None
        if copy is None:
            return False

        def first_of(until: float) -> int:
            if not self._is_on(message.headers):
                return copy.attempt
            return self._services.copies.first(copy[:3], copy.attempt, until)

        first = self._asking.ask(copy.task_id, first_of, copy.attempt)
        if first != copy.attempt:
            logger.info(_DROPPED, copy.task_id, copy.attempt, first)
        return first != copy.attempt

    def _is_taken(self, message: Any) -> bool:
        task_id = message.properties.get("correlation_id")
        one = identity_of(task_id, message.headers, message.properties)
        if one is None or not may_come_again(message):
            return False
        is_taken = self._asking.ask(
            task_id, lambda until: self._services.copies.is_taken(one, until), False
        )
        if is_taken:
            logger.info(_TAKEN, task_id)
        return is_taken

    def _is_on(self, headers: Any) -> bool:
        once = headers.get(ONCE_HEADER)
        return once if isinstance(once, bool) else self._services.settings.once

    def _copy_of(self, message: Any) -> _Copy | None:
        headers, queue = message.headers, self._queue_of(message)
        task_id, attempt = message.properties.get("correlation_id"), headers[ATTEMPT_HEADER]
        copy = _Copy(task_id, headers.get(HAND_OVER_HEADER), queue, attempt)
        # Anybody may have written the headers, and an exception here would stop the worker.
        is_one = all(isinstance(name, str) for name in copy[:3]) and type(attempt) is int
        return copy if is_one and 0 < attempt < MOST_ATTEMPTS else None

    def _queue_of(self, message: Any) -> Any:
        """The queue that a message came from; ``None`` where that is not known.

        An exchange may lead to several queues, and each is to have its copy.
        """
        info = message.delivery_info or {}
        if not info.get("exchange"):
            return ""
        tag = info.get("consumer_tag")
        tags = getattr(self._consumer.task_consumer, "_active_tags", {})
        return next((queue for queue, its_tag in tags.items() if its_tag == tag), None)
