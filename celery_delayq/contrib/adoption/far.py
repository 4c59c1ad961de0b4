"""Selects the messages to adopt: those with a far eta that can be read in one way only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timezone
from typing import Any

from ...core import clock
from ...core.clock import When
from ...core.errors import InvalidDueTime, InvalidOption
from ...core.message.headers import DUE_HEADER, tag_of, was_redelivered
from ...core.scheduling.intercept import wants_capture
from ...core.services import Services
from ...core.store import checked_id


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
