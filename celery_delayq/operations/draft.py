"""Changes the arguments, the priority, the expiry or the queue of a waiting message.

    message --> arguments --changed--> serialised, compressed and encoded as they were
            --> priority  --changed--> another list
            --> queue     --changed--> the route that Celery gives a call with it
            --> all else unchanged

The rest of the message stays the same: id, headers, links.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import kombu.serialization
from celery import Celery
from celery.exceptions import QueueNotFound
from kombu import Exchange
from kombu.common import Broadcast
from kombu.compression import compress
from kombu.entity import maybe_delivery_mode
from kombu.serialization import dumps as serialize
from kombu.transport import virtual
from kombu.utils.json import loads

from ..core.errors import InvalidOption
from ..core.message.body import body_of, is_celery_s, shown
from ..core.message.broker import Broker
from ..core.message.headers import EXPIRES_HEADER, LAUNCH
from ..core.message.outgoing import OutgoingMessage, dumps, header_of, list_key, record_of
from ..core.store.record import Extras, NewRecord, Record, header_for


class Draft:
    """A message as read from the store.

    Args:
        text: The message.
        record: The record that has it.
        app: The app.

    Raises:
        ValueError, KeyError, TypeError, AttributeError: it is no Celery message.
    """

    def __init__(self, text: bytes, record: Record, app: Celery) -> None:
        self._message = loads(text)
        self._record = record
        self._app = app
        self._headers: dict[str, Any] = self._message["headers"]
        self._properties: dict[str, Any] = self._message["properties"]
        self._body = body_of(self._message, app.conf.accept_content)
        self._has_changed_body = False
        self._kind = "L" if record.is_for_list else "R"
        self._destination = record.destination
        self._labels = b""  # the record's own
        if record.expires_ms is not None:
            self._headers[EXPIRES_HEADER] = record.expires_ms

    @property
    def is_readable(self) -> bool:
        """Whether its arguments may and can be decoded."""
        return isinstance(self._body, dict if self.is_v1 else (list, tuple))

    @property
    def is_canvas(self) -> bool:
        return self._headers.get("task") == LAUNCH

    @property
    def is_v1(self) -> bool:
        """Whether it uses protocol 1, which has the call in the body."""
        return "task" not in self._headers

    @property
    def task(self) -> str:
        """The task's name."""
        name: str = (self._body if self.is_v1 else self._headers)["task"]
        return name

    @property
    def serializer(self) -> str | None:
        """The serializer of its arguments, if it is known here."""
        name: str | None = kombu.serialization.registry.type_to_name.get(
            self._message["content-type"]
        )
        return name

    @property
    def arguments(self) -> tuple[Any, Any]:
        """Positional and keyword arguments of a readable message."""
        if self.is_v1:
            return self._body["args"], self._body["kwargs"]
        args, kwargs, *_ = self._body
        return args, kwargs

    def set_arguments(self, args: Any, kwargs: Any) -> None:
        """Replace the arguments; a text that the caller set for logs stays."""
        old, new = shown(self._app, *self.arguments), shown(self._app, args, kwargs)
        for name, was, says in zip(("argsrepr", "kwargsrepr"), old, new, strict=True):
            if name in self._headers and is_celery_s(self._headers[name], was):
                self._headers[name] = says
        if self.is_v1:
            self._body.update(args=args, kwargs=kwargs)
        else:
            self._body = (args, kwargs, *self._body[2:])
        self._has_changed_body = True

    def set_expiry(self, moment: datetime | None, after_due_ms: int | None = None) -> None:
        """Set when it expires, or ``None``; *after_due_ms*: how long after the due time."""
        text = None if moment is None else moment.isoformat()
        self._headers.pop(EXPIRES_HEADER, None)
        if self.is_v1:
            self._body["expires"] = text
            self._has_changed_body = True
            return
        self._headers["expires"] = text
        if after_due_ms is not None:
            self._headers[EXPIRES_HEADER] = after_due_ms

    @property
    def expires(self) -> str | None:
        """The time when it expires, as Celery reads it."""
        text: str | None = (self._body if self.is_v1 else self._headers).get("expires")
        return text

    def set_eta(self, moment: datetime) -> None:
        """Set the ``eta`` until which a worker holds it, as in plain Celery."""
        (self._body if self.is_v1 else self._headers)["eta"] = moment.isoformat()
        self._has_changed_body |= self.is_v1

    def set_priority(self, priority: int | None, options: Mapping[str, Any]) -> None:
        """Set the priority, and the list for it; *options* are the broker's."""
        channel = virtual.Channel
        self._properties["priority"] = channel.default_priority if priority is None else priority
        key = list_key(self._properties["delivery_info"]["routing_key"], priority, options)
        if self._kind == "L":
            self._destination = options.get("global_keyprefix", "") + key
            return
        route = loads(self._destination)
        if route["list"] is not None:
            self._destination = dumps({**route, "list": key})

    def set_queue(self, name: str, broker: Broker, *, direct: bool, prefix: str) -> None:
        """Route it anew, as Celery routes a call with this queue; after any other change.

        Args:
            name: The queue's name.
            broker: The app's broker.
            direct: Whether the store is in the broker's Redis.
            prefix: The store's prefix.

        Raises:
            InvalidOption: the app has no such queue, and may not make it; or its list would be a
                key of the store.
        """
        amqp = self._app.amqp
        args, kwargs = self.arguments if self.is_readable else ((), {})
        try:
            routed = amqp.router.route({"queue": name}, self.task, args, kwargs)
        except QueueNotFound:
            raise InvalidOption("queue", name, "a queue of the app, see task_queues") from None
        queue, exchange, key = (routed.get(part) for part in ("queue", "exchange", "routing_key"))
        # From here on as in Celery's `send_task_message`.
        kind = getattr(queue.exchange, "type", "direct")
        if not (exchange and key) and kind == "direct":
            exchange, key = "", queue.name
        elif exchange is None:
            exchange = queue.exchange.name or amqp.default_exchange
            key = key or queue.routing_key or self._app.conf.task_default_routing_key
        declare = [] if isinstance(queue, Broadcast) else [queue]
        if isinstance(exchange, Exchange):
            exchange, declare = exchange.name, [exchange, *declare]
        mode = getattr(queue.exchange, "delivery_mode", None)
        mode = mode or self._app.conf.task_default_delivery_mode
        self._properties["delivery_mode"] = maybe_delivery_mode(mode)
        self._properties["delivery_info"] = {"exchange": exchange, "routing_key": key}
        message = OutgoingMessage(self._message, exchange, key, declare, self._body, dumps)
        header = header_of(message, broker, amqp.queues, direct=direct, prefix=prefix)
        self._kind, self._labels = header[1:2].decode(), message.labels
        self._destination = header.partition(b":")[2].decode()

    def new_record(self, extras: Extras | None = None) -> NewRecord:
        """Return the changed record, with other extras, if given.

        Raises:
            kombu.exceptions.EncodeError: the serializer cannot encode the arguments.
        """
        share = self._record.name is not None or EXPIRES_HEADER in self._headers
        new = self._new_record(share=share)
        return self._record.with_message(new, extras, self._labels)

    def released(self) -> NewRecord:
        """Return the record for delivery at once; no template, as each has its own ``eta``."""
        return self._record.released(self._new_record(share=False))

    def _new_record(self, *, share: bool) -> NewRecord:
        if self._has_changed_body:
            self._encode()
        header = header_for(self._kind, self._destination)
        return record_of(self._message, header, b"", share=share)

    def _encode(self) -> None:
        content_type, encoding, data = serialize(self._body, serializer=self.serializer)
        compression = self._headers.get("compression")
        if compression:
            data, _ = compress(data, compression)
        body_encoding = self._properties.get("body_encoding")
        if body_encoding:
            data = virtual.Channel.codecs[body_encoding].encode(data)
        self._message.update({
            "body": data, "content-type": content_type, "content-encoding": encoding,
        })  # fmt: skip
