"""Where a message goes when it is due: to a list in the store's Redis, or through the broker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kombu import Queue

from ..errors import InvalidOption
from ..store.keys import KEYS
from ..store.record import header_for
from .broker import Broker
from .outgoing import OutgoingMessage, dumps, list_key
from .route import relay_route

_NOT_OURS = "a name that is none of this store's keys"


def header_of(
    message: OutgoingMessage,
    broker: Broker,
    queues: Mapping[str, Queue],
    *,
    direct: bool,
    prefix: str,
    route: Mapping[str, Any] | None = None,
) -> bytes:
    """Return the header of a message's record, which says where the message goes.

    Args:
        message: The message.
        broker: The app's broker.
        queues: The app's queues.
        direct: Whether the store is in the broker's Redis, so a script can push to the queue.
        prefix: The store's prefix, ``delayq_prefix``.
        route: The relay's route, if known; its ``list`` is determined anew.

    Raises:
        InvalidOption: the queue's list would be a key of the store.
    """
    key: str | None = None
    if broker.endpoint is not None and not _needs_relay(message):
        priority = message.message["properties"].get("priority")
        key = list_key(message.routing_key, priority, broker.options)
    if key and direct:
        of_all = broker.options.get("global_keyprefix", "")
        tagged = of_all.startswith(f"{{{prefix}:") and "}" in of_all
        return list_header(of_all + key, prefix, message.routing_key, tagged=tagged)
    text = relay_route(message, queues, key) if route is None else dumps({**route, "list": key})
    return header_for("R", text)


def _needs_relay(message: OutgoingMessage) -> bool:
    """Whether only kombu can deliver it.

    It names an exchange, its queue has an expiry, or it wants more declared than its own queue.
    """
    for entity in message.declare:
        if not isinstance(entity, Queue) or entity.name != message.routing_key:
            return True
        if "x-expires" in (entity.queue_arguments or {}) or entity.expires:
            return True
    return bool(message.exchange)


def list_header(key: str, prefix: str, queue: str, *, tagged: bool = False) -> bytes:
    """Return the header of a record whose message goes to a list in the store's Redis.

    Raises:
        InvalidOption: the list is a key of the store.
    """
    tag, end, name = key.partition("}:")
    # If the broker's keys have the store's tag, each list has it.
    if tag.startswith(f"{{{prefix}:") and end and not (tagged and name not in KEYS):
        # The store would take a message there for its own data.
        raise InvalidOption("queue", queue, _NOT_OURS)
    return header_for("L", key)
