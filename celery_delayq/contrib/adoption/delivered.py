"""Turns messages that a broker delivered into entries.

schedule_delivered  schedules by the options in the message's properties
entry_of            makes the entry alone, for a caller that writes many at once
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kombu import Message

from ...core.errors import InvalidOption
from ...core.message.body import serializer_of
from ...core.message.headers import REDELIVERED_HEADER, foreign
from ...core.message.outgoing import recorded
from ...core.scheduling.intercept import ONCE, Interceptor, Request, request_of
from ...core.scheduling.options import AFTER, AT, LASTING, PREFIX
from ...core.scheduling.writing import Ready, write_one
from ...core.store import Receipt, checked_id

# Properties of a message's delivery.
_OF_THE_WAY = ("delivery_info", "delivery_tag", "body_encoding", "expiration")
# Properties of AMQP that kombu keeps apart from the others.
_APART = ("application_headers", "content_type", "content_encoding")


def schedule_delivered(interceptor: Interceptor, message: Message) -> Receipt:
    """Schedule a message that a broker delivered, by the options in its properties.

    No caller is left to handle a conflict, so the waiting task is kept unless the options say
    otherwise.

    Raises:
        DelayQError: the message was not scheduled.
    """
    asked = {name: value for name, value in message.properties.items() if _is_own(name)}
    request = request_of(interceptor.services, asked, None, _task_of(message))
    if request is None:
        raise InvalidOption("time", None, f"one of {AT} and {AFTER}")
    own = request.entry_options
    request = replace(request, entry_options=replace(own, conflict=own.conflict or "keep"))
    words = {name: asked[name] for name in LASTING if name in asked}
    ready = entry_of(interceptor, message, request, headers=words)
    return write_one(interceptor.services, ready)


def entry_of(
    interceptor: Interceptor,
    message: Message,
    request: Request,
    *,
    queue: str | None = None,
    headers: Mapping[str, Any] | None = None,
) -> Ready:
    """Make the entry of a message that a broker delivered, without writing it.

    Args:
        interceptor: Makes the entry.
        message: The message; its eta is left out.
        request: The requested time and terms.
        queue: The queue to deliver to, past any exchange; by default, its own destination.
        headers: Further headers.

    Raises:
        DelayQError: the message cannot be scheduled.
    """
    properties = {
        name: value
        for name, value in message.properties.items()
        if not _is_own(name) and name not in (*_OF_THE_WAY, *_APART)
    }
    body, content = _without_eta(message)
    all_headers = {**foreign(message.headers), **(headers or {})}
    if message.headers.get(REDELIVERED_HEADER):
        all_headers[REDELIVERED_HEADER] = True
    if "task" in all_headers:
        all_headers["eta"] = None
    exchange = "" if queue else message.delivery_info.get("exchange") or ""
    routing_key = queue or message.delivery_info["routing_key"]
    declared = None if exchange else interceptor.services.app.amqp.queues.get(routing_key)
    task_id = checked_id(properties["correlation_id"])
    outgoing = recorded(
        interceptor.producer,
        body,
        exchange=exchange,
        routing_key=routing_key,
        declare=[declared] if declared is not None else [],
        # kombu has decompressed the body.
        compression=all_headers.pop("compression", None),
        headers=all_headers,
        **content,
        **properties,
    )
    return interceptor.entry(outgoing, request, task_id, ONCE)


def _without_eta(message: Message) -> tuple[Any, dict[str, Any]]:
    """The body of a received message, and its content type or serializer."""
    if "task" in message.headers:  # where its eta is
        content = {"content_type": message.content_type}
        return message.body, {**content, "content_encoding": message.content_encoding}
    return {**message.payload, "eta": None}, {"serializer": serializer_of(message.content_type)}


def asks_for_a_time(message: Message) -> bool:
    """Whether a message that a broker delivered still carries an option of this package.

    A process with a ``DelayQ`` removes it; one without sends it as a property.
    """
    properties = message.properties
    # A program's tests hand a worker messages of their own, such as a Mock.
    return isinstance(properties, Mapping) and any(
        _is_own(name) and name not in LASTING for name in properties
    )


def _is_own(name: str) -> bool:
    return name.startswith(PREFIX)


def _task_of(message: Message) -> str:
    """The name of the task; protocol 1 has it in the body."""
    name: str = message.headers.get("task") or message.payload.get("task", "")
    return name
