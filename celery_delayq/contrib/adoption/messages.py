"""Which messages are adopted, and the entry of each.

far_of              selects: a far eta, and only one way to read the message
schedule_delivered  schedules a message by the options in its properties
Entering            writes many messages, in one step
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timezone
from typing import Any

from kombu import Message

from ...core import clock
from ...core.clock import When
from ...core.errors import DelayQError, InvalidDueTime, InvalidOption
from ...core.message.headers import (
    DUE_HEADER,
    HOLD_HEADER,
    Hold,
    tag_of,
    was_redelivered,
)
from ...core.scheduling.intercept import ONCE, Interceptor, Request, request_of, wants_capture
from ...core.scheduling.options import AFTER, AT, LASTING, PLAIN
from ...core.scheduling.writing import write, write_one
from ...core.services import Services
from ...core.store import NewEntry, Receipt, checked_id
from ...core.text import logger_of
from ..consumer import entry_of, is_own, never

logger = logger_of(__name__)


@dataclass(frozen=True)
class Far:
    """A message with an eta, and the facts for its entry.

    Attributes:
        message: The message from the consumer.
        task_id: The id of its task.
        when: Its due time.
        queue: The queue that it came from, and goes to.
        identity: Texts that identify it, the task's id first.
        again: Whether it may have been delivered before.
        is_named: Whether its identity is unique; AMQP's messages have no id of their own.
        received: When it was received, by the monotonic clock.
        is_far: Whether it is due late enough to be adopted.
        ack: Celery's function that acknowledges it.
    """

    message: Any
    task_id: str
    when: When
    queue: str
    identity: tuple[str, ...]
    again: bool
    is_named: bool
    received: float
    is_far: bool
    ack: Any = None


def has_eta(message: Any, body: Any) -> bool:
    """Whether a message has an eta and has never been in the store; a quick check.

    Args:
        message: The message.
        body: Its decoded body, in protocol 1; else ``None``.
    """
    headers = message.headers
    return DUE_HEADER not in headers and bool(_envelope(headers, body).get("eta"))


def far_of(
    services: Services, message: Any, body: Any, queue: str | None, after: float
) -> Far | None:
    """Return a message with an eta as a candidate; ``None`` leaves it to Celery.

    Args:
        services: The services of the app that received the message.
        message: The message.
        body: Its decoded body, in protocol 1; else ``None``.
        queue: The queue that it came from, if known.
        after: An eta more than this many seconds ahead is far.
    """
    envelope = _envelope(message.headers, body)
    task_id = message.properties.get("correlation_id")
    if queue is None or DUE_HEADER in message.headers or task_id != envelope.get("id"):
        return None
    try:
        due = clock.celery_time(envelope.get("eta"))
        if _has_expired(envelope) or not _is_taken_in(services, message, envelope):
            return None
        checked_id(task_id)
        when = clock.at(due, timezone.utc)
    except (InvalidOption, InvalidDueTime):
        return None
    own = message.properties.get("message_id") or tag_of(message.properties)
    identity = (task_id, queue, str(own), envelope["eta"], str(envelope.get("retries")))
    again = was_redelivered(message.delivery_info)
    ahead = (due - clock.utc_now()).total_seconds()
    is_named, received = own is not None, clock.monotonic()
    return Far(message, task_id, when, queue, identity, again, is_named, received, ahead > after)


def _envelope(headers: Mapping[str, Any], body: Any) -> Mapping[str, Any]:
    """The mapping with id, eta and expires."""
    return headers if "task" in headers or not isinstance(body, Mapping) else body


def _has_expired(envelope: Mapping[str, Any]) -> bool:
    expires = envelope.get("expires")
    return expires is not None and clock.celery_time(expires) <= clock.utc_now()


def _is_taken_in(services: Services, message: Any, envelope: Mapping[str, Any]) -> bool:
    """Whether no one opted out, the worker may read the message, and it is not too long."""
    task = services.app.tasks.get(envelope["task"])
    facts = {**message.properties, **message.headers}
    return (
        wants_capture(task, facts)
        and (message.accept is None or message.content_type in message.accept)
        and len(message.body) <= services.settings.max_message
    )


def schedule_delivered(interceptor: Interceptor, message: Message) -> Receipt:
    """Schedule a message that a broker delivered, by the options in its properties.

    No caller is left to handle a conflict, so the waiting task is kept unless the options say
    otherwise.

    Raises:
        DelayQError: the message was not scheduled.
    """
    asked = {name: value for name, value in message.properties.items() if is_own(name)}
    request = request_of(interceptor.services, asked, None, _task_of(message))
    if request is None:
        raise InvalidOption("time", None, f"one of {AT} and {AFTER}")
    own = request.entry_options
    request = replace(request, entry_options=replace(own, conflict=own.conflict or "keep"))
    words = {name: asked[name] for name in LASTING if name in asked}
    ready = entry_of(interceptor, message, request, headers=words)
    return write_one(interceptor.services, ready)


def asks_for_a_time(message: Message) -> bool:
    """Whether a message that a broker delivered still carries an option of this package.

    A process with a ``DelayQ`` removes it; one without sends it as a property.
    """
    properties = message.properties
    # A program's tests hand a worker messages of their own, such as a Mock.
    return isinstance(properties, Mapping) and any(
        is_own(name) and name not in LASTING for name in properties
    )


def _task_of(message: Message) -> str:
    """The name of the task; protocol 1 has it in the body."""
    name: str = message.headers.get("task") or message.payload.get("task", "")
    return name


class Entering:
    """Makes and writes entries; used by one thread."""

    def __init__(self, services: Services) -> None:
        self._interceptor = Interceptor(services, never)
        self._services = services

    def write(self, batch: Sequence[Far]) -> list[Receipt | DelayQError]:
        """Write entries in one step.

        Returns:
            For each message a receipt, or the error that kept it from being written.

        Raises:
            StoreError: none was written, or it is unknown whether they were.
        """
        made = [self._entry(far) for far in batch]
        new = [entry for entry in made if isinstance(entry, NewEntry)]
        answers = iter(write(self._services, new, ONCE) if new else ())
        return [next(answers) if isinstance(entry, NewEntry) else entry for entry in made]

    def _entry(self, far: Far) -> NewEntry | DelayQError:
        delivery = self._services.copies.delivery(
            far.identity, again=far.again or far.is_named, received=far.received
        )
        try:
            hold = Hold.of(far.message.headers.get(HOLD_HEADER), far.task_id)
            request = Request(far.when, delivery=delivery, entry_options=PLAIN.holding(hold))
            return entry_of(self._interceptor, far.message, request, queue=far.queue).new
        except DelayQError as error:
            return error
        except Exception as error:
            # Celery writes no such headers. It reports them itself when it gets the message.
            logger.debug("task %s: not adopted: %r", far.task_id, error)
            return DelayQError(str(error))
