"""The route of a relayed message: written when it is scheduled, read when it is due."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from kombu import Exchange, Queue, binding
from kombu.transport import virtual
from kombu.utils.json import loads

from .outgoing import OutgoingMessage, dumps


def relay_route(
    message: OutgoingMessage, queues: Mapping[str, Queue], key: str | None = None
) -> str:
    """Return a message's route as JSON text, which is the destination in its record.

    Args:
        message: The message.
        queues: The app's queues. Those bound to the message's exchange are declared before it is
            published, as a worker would do.
        key: The list in the broker's Redis to which it can be pushed unchanged, if there is one.
    """
    named = [queue for queue in queues.values() if _exchange_name(queue) == message.exchange]
    entities = list(message.declare)
    if message.exchange:
        entities += [queue for queue in named if queue not in entities]
    exchanges = [entity if isinstance(entity, Exchange) else entity.exchange for entity in entities]
    route = {
        "exchange": message.exchange,
        "routing_key": message.routing_key,
        "declare": [_described(entity) for entity in entities],
        # A missing queue counts as a failure, but a fanout needs no listeners.
        "mandatory": not any(exchange and exchange.type == "fanout" for exchange in exchanges),
        "list": key,
    }
    text: str = dumps(route)
    return text


def _exchange_name(queue: Queue) -> str | None:
    return queue.exchange.name if queue.exchange is not None else None


@dataclass(frozen=True)
class Route:
    """The exchange and routing key of a message, and the entities to declare before."""

    text: str
    exchange: str
    routing_key: str
    declare: tuple[Queue | Exchange, ...]
    mandatory: bool
    list: str | None

    @property
    def declared_exchanges(self) -> set[str]:
        """The exchanges that exist once its entities are declared, with the anonymous one."""
        exchanges = [
            entity if isinstance(entity, Exchange) else entity.exchange for entity in self.declare
        ]
        return {"", *(exchange.name for exchange in exchanges if exchange)}

    @classmethod
    @lru_cache(maxsize=256)
    def parse(cls, text: str) -> Route:
        where = loads(text)
        return cls(
            text=text,
            exchange=where["exchange"],
            routing_key=where["routing_key"],
            declare=tuple(_entity(described) for described in where["declare"]),
            mandatory=where["mandatory"],
            list=where["list"],
        )


@dataclass(frozen=True)
class Relayed:
    """A due message, ready for a producer of the real broker."""

    route: Route
    body: bytes
    options: dict[str, Any]

    @classmethod
    def parse(cls, route: str, message: bytes) -> Relayed:
        """Make one from the parts of a record.

        Raises:
            ValueError, KeyError, TypeError, AttributeError: the parts are not what
                :func:`relay_route` and :func:`.outgoing.record_of` write.
        """
        envelope = loads(message)
        properties = dict(envelope["properties"])
        encoding = properties.pop("body_encoding", None)
        for own in ("delivery_info", "delivery_tag"):
            properties.pop(own, None)
        body = envelope["body"]
        if encoding:
            body = virtual.Channel.codecs[encoding].decode(body)
        return cls(
            route=Route.parse(route),
            body=body.encode() if isinstance(body, str) else body,
            options={
                **properties,
                "headers": envelope["headers"],
                "content_type": envelope["content-type"],
                "content_encoding": envelope["content-encoding"],
            },
        )


def _described(entity: Any) -> dict[str, Any]:
    parts = entity.as_dict(recurse=True)
    return {name: value for name, value in parts.items() if value not in (None, [])}


def _entity(described: dict[str, Any]) -> Queue | Exchange:
    if "type" in described:
        return Exchange(**described)
    options = dict(described)
    bindings = [_bound(each) for each in options.pop("bindings", ())]
    exchange = options.pop("exchange", None)
    return Queue(
        exchange=Exchange(**exchange) if exchange else None, bindings=bindings or None, **options
    )


def _bound(described: dict[str, Any]) -> binding:
    options = dict(described)
    return binding(Exchange(**options.pop("exchange")), **options)
