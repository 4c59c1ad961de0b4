"""The message exactly as kombu would publish it, without a broker.

kombu serialises, compresses and labels the message over a channel that has no connection, and
:func:`recorded` returns what comes out.
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

# What kombu.utils.json.dumps does, with one encoder for all calls: making one takes longer than
# encoding a header.
dumps = JSONEncoder().encode

_QUEUE = "text, or a Queue whose name is"


@dataclass(frozen=True)
class OutgoingMessage:
    """What would have been published, and where to.

    ``payload`` is the body before it was serialised; ``encode`` makes of such a one what stands in
    the message.
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
        """What its entry can be picked by: the task, and the queue that Celery sends it with.

        Where that is not known, as for what was adopted, its routing key stands for a queue.
        """
        # In protocol 1 the task's name stands in the body.
        body = self.payload if isinstance(self.payload, Mapping) else {}
        task = self.message["headers"].get("task", body.get("task", ""))
        queues = [entity.name for entity in self.declare if isinstance(entity, Queue)]
        return labels_for(str(task), str(queues[0] if queues else self.routing_key))

    def shareable(self) -> tuple[list[str], list[str]]:
        """The lines of a template, and what stands between them; see :func:`_shareable`."""
        return _shareable(self.message)


def record_of(
    message: dict[str, Any], destination: bytes, labels: bytes, *, share: bool
) -> NewRecord:
    """The record of a message; *share*: with a template, where the message allows it."""
    lines, differing = _shareable(message) if share else ([], [])
    if lines:
        return Template.of(lines).new_record(destination, labels, differing)
    return whole(destination, labels, _open_ended(message))


# What differs between two calls of one task, and what of it a task's id stands for.
DIFFERING = ("id", "root_id", "parent_id", "expires", "argsrepr", "kwargsrepr")
# Headers of Celery's, kombu's and this package's that are mostly the same in all calls of a task.
ALIKE = {
    "lang", "task", "shadow", "eta", "retries", "timelimit", "origin", "ignore_result",
    "replaced_task_nesting", "stamped_headers", "stamps", "compression",
    ONCE_HEADER, CAPTURE_HEADER,
}  # fmt: skip
LARGE = 2000  # bytes of body, or of template, from which sharing is not worth its while


# An id that stands in JSON as it is.
PLAIN_ID = re.compile(r"[A-Za-z0-9._:-]+")


def _open_ended(message: dict[str, Any]) -> str:
    """The message's JSON with the due header last, up to the value of it."""
    own = (DUE_HEADER, EXPIRES_HEADER)
    headers = {name: value for name, value in message["headers"].items() if name not in own}
    others = {part: value for part, value in message.items() if part != "headers"}
    text: str = dumps({**others, "headers": {**headers, DUE_HEADER: 0}})
    return text[: -len("0}}")]


def _shareable(message: dict[str, Any]) -> tuple[list[str], list[str]]:
    """The lines of the message's template, and what stands between them; empty if it has none.

    The lines meet, in this order: id, id and operation (a delivery tag that no other message
    has), body, id, root id, parent id, expiry, args and kwargs for logs, due time. An expiry that
    counts from the due time is written as its milliseconds, with a sign. The headers that may
    differ with each call, such as its trace, stand behind the kwargs.
    """
    headers, properties = dict(message["headers"]), dict(message["properties"])
    task_id = properties.pop("correlation_id", None)
    properties.pop("delivery_tag", None)
    if not headers.keys() >= set(DIFFERING):
        return [], []
    own_id, root, parent, expires, args, kwargs = map(headers.pop, DIFFERING)
    headers.pop(DUE_HEADER, None)
    expires_ms = headers.pop(EXPIRES_HEADER, None)
    # Recomputed where a broker knows it; Redis does not.
    properties.pop("expiration", None)
    if own_id != task_id or not isinstance(task_id, str) or not PLAIN_ID.fullmatch(task_id):
        return [], []
    alike = {name: one for name, one in headers.items() if one is None or name in ALIKE}
    others = {name: one for name, one in headers.items() if name not in alike}
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
    # An expiry that counts from the due time follows it, and only a template lets it.
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
    """A producer whose ``publish`` returns the message; for the broker's options and transport.

    It keeps nothing from one message to the next, so any number of threads may share it.
    """
    nowhere = Connection("memory://").transport
    # Tracers ask the producer what it publishes to.
    nowhere.driver_type = transport
    channel = _Channel(nowhere)
    channel.body_encoding = options.get("body_encoding", channel.body_encoding)
    return Producer(channel)


def encoded(
    recording: Producer, serializer: str | None, compression: str | None, payload: Any
) -> str:
    """What kombu's producer and channel make of a body, without what they make around it."""
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
    """What ``Producer.publish`` of these arguments would publish; *recording* makes it.

    Raises:
        InvalidOption: exchange, routing key or queue is no text.
    """
    name, entities = exchange, list(declare or ())
    if isinstance(exchange, Exchange):
        # Its type is known here only; whoever publishes has to declare it.
        name, entities = exchange.name, [exchange, *entities]
    options.update(retry=False, retry_policy=None)
    encode = partial(
        encoded, recording, options.get("serializer"), options.get("compression") or None
    )
    # declare=[]: nothing can be declared here; whoever hands the message over does that.
    message, _, routing_key = recording.publish(body, exchange=name, declare=[], **options)
    _check_names(name, routing_key)
    return OutgoingMessage(message, name, routing_key, entities, body, encode)


def _check_names(exchange: Any, routing_key: Any) -> None:
    """Refuse what is no text, which no broker takes; nor does kombu, as it declares a queue.

    Raises:
        InvalidOption: one of the two.
    """
    # Without an exchange, the routing key is the name of the queue.
    name, expected = ("routing_key", "text") if exchange else ("queue", _QUEUE)
    for option, value, wanted in (("exchange", exchange, "text"), (name, routing_key, expected)):
        if value is not None and not isinstance(value, str):
            raise InvalidOption(option, value, wanted)


def list_key(queue: str, priority: Any, options: Mapping[str, Any]) -> str:
    """The Redis list that kombu pushes a message for *queue* to; a test holds it against kombu.

    Without ``global_keyprefix``, which kombu's own client adds.

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
    """The lists of all priorities, as :func:`list_key` names them; first that of none.

    Args:
        queue: The queue's name.
        options: The broker's transport options.
    """
    channel = kombu_redis.Channel
    priorities = (None, *range(channel.min_priority, channel.max_priority + 1))
    return list(dict.fromkeys(list_key(queue, one, options) for one in priorities))


def queues_of_list(key: str, options: Mapping[str, Any]) -> tuple[str, ...]:
    """What the queue may be called whose messages are pushed to a Redis list, likeliest first.

    Args:
        key: The list's key, with ``global_keyprefix``.
        options: The broker's transport options.
    """
    name = key.removeprefix(str(options.get("global_keyprefix", "")))
    separator = str(options.get("sep", kombu_redis.Channel.sep))
    queue, _, step = name.rpartition(separator) if separator else ("", "", "")
    return (queue, name) if queue and step.isdecimal() else (name,)
