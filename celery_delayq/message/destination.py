"""Where a message goes when it is due: to a list in the store's Redis, or through the broker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kombu import Queue

from ..errors import InvalidOption
from ..store.record import destination_for
from .broker import Broker
from .outgoing import OutgoingMessage, dumps, list_key
from .route import relay_route

_NOT_OURS = "a name that is none of this store's keys"


def destination_of(
    message: OutgoingMessage,
    broker: Broker,
    queues: Mapping[str, Queue],
    *,
    direct: bool,
    prefix: str,
    route: Mapping[str, Any] | None = None,
) -> bytes:
    """A message's destination, as a record has it.

    Args:
        message: The message.
        broker: The app's broker.
        queues: The app's queues.
        direct: Whether the store is in the broker's Redis.
        prefix: The store's, ``delayq_prefix``.
        route: What a relay is told, where that is known; its ``list`` is found out anew.

    Raises:
        InvalidOption: its queue's list would be a key of the store.
    """
    key: str | None = None
    if broker.endpoint is not None and not _needs_relay(message):
        priority = message.message["properties"].get("priority")
        key = list_key(message.routing_key, priority, broker.options)
    if key and direct:
        key = broker.options.get("global_keyprefix", "") + key
        return list_destination(key, prefix, message.routing_key)
    text = relay_route(message, queues, key) if route is None else dumps({**route, "list": key})
    return destination_for("R", text)


def _needs_relay(message: OutgoingMessage) -> bool:
    """Whether only kombu can deliver it: an exchange is named, or a queue of it expires."""
    for entity in message.declare:
        if isinstance(entity, Queue):
            expires = "x-expires" in (entity.queue_arguments or {}) or entity.expires
            if expires:
                return True
    return bool(message.exchange)


def list_destination(key: str, prefix: str, queue: str) -> bytes:
    """The destination of what is bound for a list in the store's Redis.

    Raises:
        InvalidOption: the list is a key of the store.
    """
    if key.startswith(f"{{{prefix}:") and "}:" in key:
        # A message there would be taken for the store's own.
        raise InvalidOption("queue", queue, _NOT_OURS)
    return destination_for("L", key)
