"""Builds the message exactly as kombu would publish it, without a broker.

kombu serialises, compresses and labels the message on a channel without a connection, and
:func:`recorded` returns the result.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from kombu import Connection, Exchange, Producer, Queue
from kombu.compression import compress
from kombu.serialization import dumps as serialize
from kombu.transport import redis as kombu_redis
from kombu.transport import virtual
from kombu.utils.json import JSONEncoder

from ..errors import InvalidOption
from ..store.record import NewRecord, Template, labels_for, whole
from .headers import CAPTURE_HEADER, DUE_HEADER, EXPIRES_HEADER, ONCE_HEADER

# As kombu.utils.json.dumps, with one encoder for all calls: making one takes longer than encoding a
# header.
dumps = JSONEncoder().encode

_QUEUE = "text, or a Queue whose name is"


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


def record_of(message: dict[str, Any], header: bytes, labels: bytes, *, share: bool) -> NewRecord:
    """Return the record of a message; *share*: with a template, if the message allows it."""
    lines, differing = _shareable(message) if share else ([], [])
    if lines:
        return Template.of(lines).new_record(header, labels, differing)
    return whole(header, labels, _open_ended(message))


# The headers that differ between two calls of one task, and those of them that repeat its id.
DIFFERING = ("id", "root_id", "parent_id", "expires", "argsrepr", "kwargsrepr")
# Headers of Celery, kombu and this package that are mostly the same in all calls of a task.
ALIKE = {
    "lang", "task", "shadow", "eta", "retries", "timelimit", "origin", "ignore_result",
    "replaced_task_nesting", "stamped_headers", "stamps", "compression",
    ONCE_HEADER, CAPTURE_HEADER,
}  # fmt: skip
LARGE = 2000  # bytes of body or template above which sharing does not pay


# An id that needs no escapes in JSON.
PLAIN_ID = re.compile(r"[A-Za-z0-9._:-]+")


def _open_ended(message: dict[str, Any]) -> str:
    """Return the message's JSON with the due header last, cut before its value."""
    own = (DUE_HEADER, EXPIRES_HEADER)
    headers = {name: value for name, value in message["headers"].items() if name not in own}
    others = {part: value for part, value in message.items() if part != "headers"}
    text: str = dumps({**others, "headers": {**headers, DUE_HEADER: 0}})
    return text[: -len("0}}")]


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
    alike = {name: header for name, header in headers.items() if header is None or name in ALIKE}
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


class _Channel(virtual.Channel):
    """A channel that returns a message instead of delivering it."""

    def basic_publish(self, message: Any, exchange: str, routing_key: str, **_: Any) -> Any:
        self._inplace_augment_message(message, exchange, routing_key)
        return message, exchange, routing_key


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
