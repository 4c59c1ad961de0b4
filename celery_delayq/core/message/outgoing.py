"""Builds the message exactly as kombu would publish it, without a broker; and says where it goes.

    Celery's options --a channel without a connection--> recorded --> record_of   template and rest
                                                            '-----> header_of   where it goes:
                                                                    a list in the store's Redis;
                                                                    or a route, for the relay

A route is written when the message is scheduled, and read when it is due.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

from kombu import Connection, Exchange, Producer, Queue, binding
from kombu.compression import compress
from kombu.serialization import dumps as serialize
from kombu.transport import redis as kombu_redis
from kombu.transport import virtual
from kombu.utils.json import JSONEncoder, loads

from ..errors import InvalidOption
from ..store.keys import KEYS
from ..store.record import NewRecord, Template, header_for, labels_for, whole
from .broker import Broker
from .headers import CAPTURE_HEADER, DUE_HEADER, EXPIRES_HEADER, ONCE_HEADER

# As kombu.utils.json.dumps, with one encoder for all calls: making one takes longer than encoding a
# header.
dumps = JSONEncoder().encode

# The headers that differ between two calls of one task, and those of them that repeat its id.
DIFFERING = ("id", "root_id", "parent_id", "expires", "argsrepr", "kwargsrepr")
# Headers of Celery, kombu and this package that are mostly the same in all calls of a task.
_ALIKE = {
    "lang", "task", "shadow", "eta", "retries", "timelimit", "origin", "ignore_result",
    "replaced_task_nesting", "stamped_headers", "stamps", "compression",
    ONCE_HEADER, CAPTURE_HEADER,
}  # fmt: skip
LARGE = 2000  # bytes of body or template above which sharing does not pay
# An id that needs no escapes in JSON.
PLAIN_ID = re.compile(r"[A-Za-z0-9._:-]+")
_QUEUE = "text, or a Queue whose name is"
_NOT_OURS = "a name that is none of this store's keys"


@dataclass(frozen=True)
class OutgoingMessage:
    """A message as kombu would publish it, and its route.

    ``payload`` is the body before serialisation; ``encode`` turns a payload into the body's text.
    """

    message: dict[str, Any]
    exchange: str
    routing_key: str
    declare: Sequence[Any]
    payload: Any
    encode: Callable[[Any], str]

    @property
    def headers(self) -> dict[str, Any]:
        headers: dict[str, Any] = self.message["headers"]
        return headers

    @property
    def labels(self) -> bytes:
        """The names that selections filter by: the task, and the queue that Celery sends it to.

        If the queue is unknown, as for an adopted message, the routing key takes its place.
        """
        # In protocol 1 the task's name is in the body.
        body = self.payload if isinstance(self.payload, Mapping) else {}
        task = self.message["headers"].get("task", body.get("task", ""))
        queues = [entity.name for entity in self.declare if isinstance(entity, Queue)]
        return labels_for(str(task), str(queues[0] if queues else self.routing_key))

    def shareable(self) -> tuple[list[str], list[str]]:
        """The lines of a template, and the texts between them; see :func:`_shareable`."""
        return _shareable(self.message)


def recording_producer(options: Mapping[str, Any], transport: str) -> Producer:
    """Return a producer whose ``publish`` returns the message, for the broker's options.

    It keeps no state between messages, so any number of threads may share it.
    """
    nowhere = Connection("memory://localhost").transport
    # Tracers read the transport's name from the producer.
    nowhere.driver_type = transport
    channel = _Channel(nowhere)
    channel.body_encoding = options.get("body_encoding", channel.body_encoding)
    return Producer(channel)


def recorded(
    recording: Producer,
    body: Any,
    *,
    exchange: str | Exchange = "",
    declare: Sequence[Any] | None = None,
    **options: Any,
) -> OutgoingMessage:
    """Return the message that ``Producer.publish`` would publish; *recording* builds it.

    Raises:
        InvalidOption: exchange, routing key or queue is not text.
    """
    name, entities = exchange, list(declare or ())
    if isinstance(exchange, Exchange):
        # Its type is known only here, and the publisher has to declare it.
        name, entities = exchange.name, [exchange, *entities]
    options.update(retry=False, retry_policy=None)
    encode = partial(
        encoded, recording, options.get("serializer"), options.get("compression") or None
    )
    # declare=[]: nothing can be declared here; the publisher does that.
    message, _, routing_key = recording.publish(body, exchange=name, declare=[], **options)
    _check_names(name, routing_key)
    return OutgoingMessage(message, name, routing_key, entities, body, encode)


def encoded(
    recording: Producer, serializer: str | None, compression: str | None, payload: Any
) -> str:
    """Return the body's text, as kombu's producer and channel encode it."""
    channel = recording.channel
    _, _, data = serialize(payload, serializer=serializer)
    if compression:
        data, _ = compress(data, compression)
    text: str = channel.encode_body(data, channel.body_encoding)[0]
    return text


def _check_names(exchange: Any, routing_key: Any) -> None:
    """Refuse names that are not text: neither a broker nor kombu accepts them.

    Raises:
        InvalidOption: one of the two is not text.
    """
    # Without an exchange, the routing key is the name of the queue.
    name, expected = ("routing_key", "text") if exchange else ("queue", _QUEUE)
    for option, value, wanted in (("exchange", exchange, "text"), (name, routing_key, expected)):
        if value is not None and not isinstance(value, str):
            raise InvalidOption(option, value, wanted)


class _Channel(virtual.Channel):
    """A channel that returns a message instead of delivering it."""

    def basic_publish(self, message: Any, exchange: str, routing_key: str, **_: Any) -> Any:
        self._inplace_augment_message(message, exchange, routing_key)
        return message, exchange, routing_key


def record_of(message: dict[str, Any], header: bytes, labels: bytes, *, share: bool) -> NewRecord:
    """Return the record of a message; *share*: with a template, if the message allows it."""
    lines, differing = _shareable(message) if share else ([], [])
    if lines:
        return Template.of(lines).new_record(header, labels, differing)
    return whole(header, labels, _open_ended(message))


def _shareable(message: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Return the lines of the message's template, and the texts between them; empty if it has none.

    Between the lines come, in this order: id, id and operation (a unique delivery tag), body, id,
    root id, parent id, expiry, args and kwargs for logs, due time. An expiry that counts from the
    due time is written as milliseconds, with a sign. Headers that may differ with each call, such
    as its trace, follow the kwargs.
    """
    headers, properties = dict(message["headers"]), dict(message["properties"])
    task_id = properties.pop("correlation_id", None)
    properties.pop("delivery_tag", None)
    if not headers.keys() >= set(DIFFERING):
        return [], []
    own_id, root, parent, expires, args, kwargs = map(headers.pop, DIFFERING)
    headers.pop(DUE_HEADER, None)
    expires_ms = headers.pop(EXPIRES_HEADER, None)
    if own_id != task_id or not isinstance(task_id, str) or not PLAIN_ID.fullmatch(task_id):
        return [], []
    alike = {name: header for name, header in headers.items() if header is None or name in _ALIKE}
    others = {name: header for name, header in headers.items() if name not in alike}
    first = {part: message[part] for part in ("content-encoding", "content-type")}
    outside = dumps({**first, "properties": {**properties, "correlation_id": ""}})
    inside = dumps({"headers": {**alike, "id": ""}})[1:].removesuffix('"}}')
    lines = [
        outside.removesuffix('"}}'),
        '", "delivery_tag": "',
        '"}, "body": ',
        f", {inside}",
        '", "root_id": ',
        ', "parent_id": ',
        ', "expires": ',
        ', "argsrepr": ',
        ', "kwargsrepr": ',
        f', "{DUE_HEADER}": ',
    ]
    # An expiry that counts from the due time moves with it, which only a template can do.
    large = len(message["body"]) > LARGE or sum(map(len, lines)) > LARGE
    if large and expires_ms is None:
        return [], []
    root_text = "" if root == task_id else dumps(root)
    expires_text = dumps(expires) if expires_ms is None else f"{expires_ms:+d}"
    behind = f", {dumps(others)[1:-1]}" if others else ""
    texts = (dumps(args), dumps(kwargs) + behind, dumps(message["body"]))
    return lines, [root_text, dumps(parent), expires_text, *texts]


def _open_ended(message: dict[str, Any]) -> str:
    """Return the message's JSON with the due header last, cut before its value."""
    own = (DUE_HEADER, EXPIRES_HEADER)
    headers = {name: value for name, value in message["headers"].items() if name not in own}
    others = {part: value for part, value in message.items() if part != "headers"}
    text: str = dumps({**others, "headers": {**headers, DUE_HEADER: 0}})
    return text[: -len("0}}")]


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


def list_key(queue: str, priority: Any, options: Mapping[str, Any]) -> str:
    """Return the Redis list for *queue*, as kombu names it; a test compares it with kombu's.

    It lacks ``global_keyprefix``, which kombu's own client adds.

    Args:
        queue: The queue's name.
        priority: The message's priority, or ``None``.
        options: The broker's transport options.
    """
    channel = kombu_redis.Channel
    steps = options.get("priority_steps") or channel.priority_steps
    try:
        wanted = min(max(int(priority), channel.min_priority), channel.max_priority)
    except (TypeError, ValueError):
        wanted = channel.default_priority
    step = steps[bisect.bisect(steps, wanted) - 1]
    separator = options.get("sep", channel.sep)
    return f"{queue}{separator}{step}" if step else queue


def list_keys(queue: str, options: Mapping[str, Any]) -> list[str]:
    """Return the lists of all priorities, as :func:`list_key` names them; without a priority first.

    Args:
        queue: The queue's name.
        options: The broker's transport options.
    """
    channel = kombu_redis.Channel
    priorities = (None, *range(channel.min_priority, channel.max_priority + 1))
    return list(dict.fromkeys(list_key(queue, priority, options) for priority in priorities))


def queues_of_list(key: str, options: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the possible names of the queue that a Redis list belongs to, likeliest first.

    Args:
        key: The list's key, with ``global_keyprefix``.
        options: The broker's transport options.
    """
    name = key.removeprefix(str(options.get("global_keyprefix", "")))
    separator = str(options.get("sep", kombu_redis.Channel.sep))
    queue, _, step = name.rpartition(separator) if separator else ("", "", "")
    return (queue, name) if queue and step.isdecimal() else (name,)


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
