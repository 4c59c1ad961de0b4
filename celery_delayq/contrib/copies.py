"""Lets a worker drop duplicates of a relayed task, if ``delayq_once`` is set.

    message --> relayed? --> guarded? --> which attempt came first? --> this one: runs
                  | no          | no        | the store is down          another: dropped
                  +--- runs ----+--- runs --+

A relay publishes first and acknowledges second, so it may publish a task more than once. Each
publication is a new attempt at the same hand-over, and the attempt that reaches a worker first
runs. If that worker dies, the broker delivers the same attempt again; it passes, as it may be the
only copy.

The guard asks the store when the worker's main process receives a message, not when its task
starts:

- A child process can no longer drop a task without a trace: by then the task was announced, may be
  acknowledged, and may be ``STARTED`` in the result backend. Each child would need a connection,
  too.
- The broker still has a message that is received but not acknowledged. If the worker dies between
  mark and run, the broker delivers the marked attempt again.
- A message that is acknowledged before it runs (Celery's default) is lost with its worker, as it
  would be without duplicates. ``acks_late`` helps there.

So a copy may be dropped while the first one waits in a busy worker; that one will run.

Whatever the setting, the guard drops a message that became an entry of the store at an earlier
delivery, as its task deferred itself:

    message --> delivered before? --yes--> became an entry? --yes--> dropped
                      | no                     | no, or the store is down
                      +--- runs ---------------+

A captured call whose request got no answer is sent with an eta and a mark; it may be an entry, too:

    message --> marked, with an eta? --yes--> an entry with its id, due then? --yes--> dropped
                      | no                     | no, or the store is down
                      +--- runs ---------------+
"""

from __future__ import annotations

from datetime import timezone
from typing import Any, NamedTuple

from celery import bootsteps

from ..core.clock import at, celery_time
from ..core.errors import DelayQError
from ..core.libraries import Feature, works
from ..core.message.headers import (
    ATTEMPT_HEADER,
    DUE_HEADER,
    HAND_OVER_HEADER,
    ONCE_HEADER,
    REDELIVERED_HEADER,
    identity_of,
    may_come_again,
)
from ..core.services import Services, find
from ..core.store import checked_id, target_of
from ..core.text import logger_of
from .consumer import ASK_AGAIN, StoreQuery, look_first, queue_by_tag

logger = logger_of(__name__)

MOST_ATTEMPTS = 2**31  # a relay never reaches this number

_DROPPED = "task %s: attempt %d is dropped, as attempt %d reached a worker first"
_UNKNOWN = f"runs, like all for the next {ASK_AGAIN:.0f} s, even if it is a duplicate"
_TAKEN = "task %s: dropped, as it was put off at an earlier delivery"
_WAITS = "task %s: dropped, as it waits in the store as well"


class _Copy(NamedTuple):
    """The task, hand-over, queue and attempt of a relayed message."""

    task_id: str
    hand_over: str
    queue: str
    attempt: int


class GuardingStep(bootsteps.Step):
    """Lets a worker's consumer drop duplicates, and tasks that were put off already."""

    def __init__(self, consumer: Any, **_: Any) -> None:
        services = find(consumer.app)
        if services is not None and works(Feature.ONCE):
            look_first(consumer, "copies", Guard(services, consumer).drops)


class Guard:
    """Asks the store about the messages that one worker receives."""

    def __init__(self, services: Services, consumer: Any) -> None:
        self._services = services
        self._consumer = consumer
        self._asking = StoreQuery(_UNKNOWN)

    def drops(self, message: Any, _body: Any, ack: Any) -> bool:
        """Acknowledge a message that is not to run; return whether it is one."""
        if not (self._is_second(message) or self._is_taken(message) or self._waits(message)):
            return False
        ack(logger, self._consumer.connection_errors)
        return True

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
        identity = identity_of(task_id, message.headers, message.properties)
        if identity is None or not may_come_again(message):
            return False
        is_taken = self._asking.ask(
            task_id, lambda until: self._services.copies.is_taken(identity, until), False
        )
        if is_taken:
            logger.info(_TAKEN, task_id)
        return is_taken

    def _waits(self, message: Any) -> bool:
        headers, task_id = message.headers, message.properties.get("correlation_id")
        if not headers.get(REDELIVERED_HEADER) or DUE_HEADER in headers:
            return False
        try:
            who, due_ms = target_of(checked_id(task_id)), _eta_ms(headers)
        except DelayQError:  # any program may have written them
            return False

        def waits(until: float) -> bool:
            entry = self._services.entries.find(who, until)
            return entry is not None and (entry.due_ms, entry.facts.attempts) == (due_ms, 0)

        is_entry = self._asking.ask(task_id, waits, False)
        if is_entry:
            logger.info(_WAITS, task_id)
        return is_entry

    def _is_on(self, headers: Any) -> bool:
        once = headers.get(ONCE_HEADER)
        return once if isinstance(once, bool) else self._services.settings.once

    def _copy_of(self, message: Any) -> _Copy | None:
        headers, queue = message.headers, self._queue_of(message)
        task_id, attempt = message.properties.get("correlation_id"), headers[ATTEMPT_HEADER]
        copy = _Copy(task_id, headers.get(HAND_OVER_HEADER), queue, attempt)
        # Any program may have written the headers, and an exception here would stop the worker.
        is_one = all(isinstance(name, str) for name in copy[:3]) and type(attempt) is int
        return copy if is_one and 0 < attempt < MOST_ATTEMPTS else None

    def _queue_of(self, message: Any) -> Any:
        """The queue that a message came from; ``None`` if it is not known.

        An exchange may lead to several queues, and each gets its copy.
        """
        is_direct = not (message.delivery_info or {}).get("exchange")
        return "" if is_direct else queue_by_tag(self._consumer, message)


def _eta_ms(headers: Any) -> int:
    return at(celery_time(headers.get("eta")), timezone.utc).ms
