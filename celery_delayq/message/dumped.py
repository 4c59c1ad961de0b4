"""An entry as a dump has it: fields that depend on no stored format, and the way back.

    kept entry --described--> {"message": ..., "route": ..., "task": ..., "queue": ..., ...}
    fields, the app they are loaded for --new_record--> what is written of a record

Nothing of a body is decoded. Where a message goes is found out anew for the app that loads it, as a
list of one broker means nothing to another.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from kombu import Queue

from ..care.dumps import Kept
from ..errors import InvalidOption, NotLoaded
from ..store import label_of
from ..store.extras import Extras
from ..store.record import LABEL_BYTES, NO_FLAGS, RELEASED, RUN_NOW, NewRecord
from .broker import Broker
from .destination import destination_of, list_destination
from .headers import DUE_HEADER, EXPIRES_HEADER
from .outgoing import OutgoingMessage, list_key, record_of
from .route import Route

_NONE_OF_CELERYS = "its message is none of Celery's"
_TEXTS = ("body", "content-type", "content-encoding")
LONGEST_NAME = 512  # characters of the name of a queue or task


def is_message(value: Any) -> bool:
    """Whether a value has the parts of a message as kombu writes them."""
    if not isinstance(value, dict) or not all(isinstance(value.get(one), str) for one in _TEXTS):
        return False
    parts = [value.get(name) for name in ("headers", "properties")]
    return all(isinstance(one, dict) for one in parts)


def least_size(message: Mapping[str, Any]) -> int:
    """How many bytes of a message every way into a store counts: those of its body, decoded."""
    size = len(message["body"])
    return size * 3 // 4 if message["properties"].get("body_encoding") == "base64" else size


def is_unicode(value: Any) -> bool:
    """Whether a value is text that has bytes: half of a surrogate pair has none."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_name(value: Any) -> bool:
    """Whether a value can stand in a dump as the name of a queue or task."""
    return is_unicode(value) and 0 < len(value) <= LONGEST_NAME


def is_route(value: Any) -> bool:
    """Whether a value says where a message goes, as :func:`described` does."""
    if not isinstance(value, dict):
        return False
    if "exchange" not in value:
        queue = value.get("queue")
        return is_unicode(value.get("list")) and (queue is None or is_unicode(queue))
    try:
        Route.parse(json.dumps(value))
        names = [one["name"] for one in value["declare"]]
    except Exception:  # kombu's classes are given what somebody wrote
        return False
    texts = (value["exchange"], value["routing_key"], *names)
    return all(map(is_unicode, texts)) and isinstance(value["mandatory"], bool)


def described(kept: Kept, broker: Broker, queues: Iterable[str]) -> dict[str, Any]:
    """Message, route and names of an entry.

    Args:
        kept: The entry.
        broker: The app's.
        queues: The names of the app's queues.

    Raises:
        ValueError, RecursionError: its message or its route cannot be read.
    """
    message = json.loads(kept.message)
    if not is_message(message):
        raise ValueError(_NONE_OF_CELERYS)
    message["headers"].pop(DUE_HEADER, None)  # it says when it is due
    route = _route_of(kept, message, broker)
    if not is_route(route):
        raise ValueError("its route cannot be read")
    flags, extras = kept.record.flags, kept.record.extras
    told = {
        "message": message,
        "expires_after_ms": kept.record.expires_ms,
        "route": route,
        **_names_of(kept, message, route, queues),
        "run_now": bool(flags & RUN_NOW),
        "released": bool(flags & RELEASED),
        "key": extras.key,
        "tags": list(extras.tags),
        "grace_ms": extras.grace_ms,
        "excused_ms": extras.excused_ms or None,
    }
    # No grace at all is another thing than none that was given.
    return {name: value for name, value in told.items() if value is not None and _tells(value)}


def _tells(value: Any) -> bool:
    return value is not False and value not in ("", [])


def _route_of(kept: Kept, message: dict[str, Any], broker: Broker) -> Any:
    place = kept.record.destination
    if not kept.record.is_for_list:
        return json.loads(place)
    info = message["properties"].get("delivery_info")
    queue = info.get("routing_key") if isinstance(info, dict) else None
    if isinstance(queue, str):
        priority = message["properties"].get("priority")
        key = broker.options.get("global_keyprefix", "") + list_key(queue, priority, broker.options)
        queue = queue if key == place else None
    # Of a list that is none of this app's queues', nobody can tell what it would be elsewhere.
    return {"queue": queue if isinstance(queue, str) else None, "list": place}


def _names_of(
    kept: Kept, message: dict[str, Any], route: Mapping[str, Any], queues: Iterable[str]
) -> dict[str, Any]:
    """What selections pick it by: names, and hashes of those that nothing here tells."""
    labels = kept.record.labels
    tasks = [message["headers"].get("task", ""), ""]
    declared = [one.get("name") for one in route.get("declare", ()) if isinstance(one, dict)]
    places = [route.get("queue"), route.get("routing_key"), *declared, *queues]
    found: dict[str, str] = {}
    for name, known, label in zip(("task", "queue"), (tasks, places), labels, strict=True):
        names = (one for one in known if one == "" or is_name(one))
        told = next((one for one in names if label_of(one) == label), None)
        found.update({f"{name}_hash": label.hex()} if told is None else {name: told})
    return found


@dataclass(frozen=True)
class Target:
    """The app and the store that a dump is loaded into.

    Attributes:
        broker: The app's broker.
        queues: The app's queues.
        direct: Whether the store is in the broker's Redis.
        prefix: The store's.
    """

    broker: Broker
    queues: Mapping[str, Queue]
    direct: bool
    prefix: str

    def new_record(self, task_id: str, created_us: int, told: Mapping[str, Any]) -> NewRecord:
        """What is written of an entry.

        Args:
            task_id: Its id.
            created_us: When it was scheduled.
            told: What :func:`described` made; each field is of its type.

        Raises:
            NotLoaded: this app cannot tell where it goes.
        """
        message = {**told["message"], "headers": dict(told["message"]["headers"])}
        destination = self._destination(task_id, message, told["route"])
        expires, released = told.get("expires_after_ms"), told.get("released", False)
        if expires is not None:
            message["headers"][EXPIRES_HEADER] = expires
        extras = Extras(
            told.get("key", ""),
            tuple(told.get("tags", ())),
            told.get("grace_ms"),
            told.get("excused_ms", 0),
        )
        flags = extras.flags + RUN_NOW * told.get("run_now", False) + RELEASED * released
        labels = b"%c" % (NO_FLAGS[0] + flags) + _label(told, "task") + _label(told, "queue")
        share = not released and _is_shareable(message, task_id, created_us)
        record = record_of(message, destination, labels, share=share)
        return replace(record, body=record.body + extras.text())

    def _destination(
        self, task_id: str, message: dict[str, Any], route: Mapping[str, Any]
    ) -> bytes:
        try:
            if "exchange" in route:
                known = Route.parse(json.dumps(route))
                outgoing = _outgoing(message, known.exchange, known.routing_key, known.declare)
                return self._made(outgoing, route)
            if route.get("queue") is None:
                return self._list(route["list"])
            outgoing = _outgoing(message, "", route["queue"], self._entities(route["queue"]))
            return self._made(outgoing)
        except InvalidOption as error:
            raise NotLoaded(task_id, str(error)) from error
        except LookupError as error:
            raise NotLoaded(task_id, str(error.args[0])) from error

    def _made(self, message: OutgoingMessage, route: Mapping[str, Any] | None = None) -> bytes:
        return destination_of(
            message,
            self.broker,
            self.queues,
            direct=self.direct,
            prefix=self.prefix,
            route=route,
        )

    def _list(self, key: str) -> bytes:
        if not self.direct:
            raise LookupError(f"it goes to the list {key!r}, and nothing tells of which queue")
        return list_destination(key, self.prefix, key)

    def _entities(self, queue: str) -> tuple[Queue, ...]:
        """The queue, as Celery would declare it.

        Raises:
            LookupError: the app has no such queue, and makes none.
        """
        if queue not in self.queues and self.direct:
            return ()  # a list needs no declaration
        try:
            return (self.queues[queue],)
        except KeyError:
            raise LookupError(f"this app has no queue {queue!r}; add it to task_queues") from None


def _outgoing(
    message: dict[str, Any], exchange: str, routing_key: str, declare: tuple[Any, ...]
) -> OutgoingMessage:
    return OutgoingMessage(message, exchange, routing_key, declare, payload=None, encode=str)


def _label(told: Mapping[str, Any], name: str) -> bytes:
    if name in told:
        return label_of(told[name])
    return bytes.fromhex(told.get(f"{name}_hash", label_of("").hex()))[:LABEL_BYTES]


def _is_shareable(message: dict[str, Any], task_id: str, created_us: int) -> bool:
    """Whether a record that shares a template gives this very message again."""
    if message["headers"].get("id") != task_id:
        return False
    tag = message["properties"].get("delivery_tag")
    return bool(tag == f"{task_id}{created_us:016d}")
