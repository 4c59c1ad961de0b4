"""The one place where a message is complete and not yet published.

Celery builds its sender in ``AMQP._create_task_sender``. Everything that sends a task ends
there: ``apply_async``, ``send_task``, signatures, retries, every part of a canvas.

    as_task_v1, _v2 ---> decided ---> routing, signals ---> Sender ---> published by Celery
                                                               \
                                                                ---> its entry is written
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

import celery.app.amqp
from kombu import Message, Producer

from ..clock import from_ms, utc_now
from ..errors import InvalidOption, InvalidSetting, MessageTooLarge
from ..logs import logger_of
from ..message import native_delay
from ..message.body import serializer_of
from ..message.headers import EXPIRES_HEADER, OWN_HEADERS
from ..message.identity import give_identity
from ..message.outgoing import (
    InterceptingProducer,
    OutgoingMessage,
    dumps,
    encoded,
    list_key,
    needs_relay,
    recording_producer,
)
from ..message.route import relay_route
from ..services import Services
from ..store import NewEntry, Receipt, checked_id
from ..store.record import LAST_MS, NewRecord, destination_for
from .request import AFTER, AT, LASTING, PREFIX, Ready, Request, has_time, note_sent, requested
from .writing import write_one

logger = logger_of(__name__)

SEEN_AT_MOST = 1000  # names of templates that a process remembers to have seen
# Places among the positional arguments of AMQP.as_task_v1 and _v2.
COUNTDOWN_AT, ETA_AT, EXPIRES_AT = 4, 5, 8
_ONCE = {"max_retries": 0}
_NOT_OURS = "a name that is none of this store's keys"
# Properties that speak of the delivery of a message.
_OF_THE_WAY = ("delivery_info", "delivery_tag", "body_encoding", "expiration")
# Properties that AMQP has beside the others, and kombu apart from them.
_APART = ("application_headers", "content_type", "content_encoding")
_RETRY_POLICY = ("max_retries", "interval_start", "interval_step", "interval_max")

Send = Callable[..., Any]


# Undocumented, and the contract says so where it is gone; an import of it would say less.
_TaskMessage: Any = getattr(celery.app.amqp, "task_message", tuple)


class DecidedMessage(_TaskMessage):
    """Celery's task message, and whether it is to be scheduled: with a request, or ``None``."""

    request: Request | None


def decided(
    services: Services, message: Any, args: tuple[Any, ...], options: dict[str, Any]
) -> Any:
    """Decide, once, whether a message is to be scheduled; *args* and *options* made it.

    A relative ``expires`` of such a message starts at the due time. (Celery starts it at the call,
    which can end a task's life before it is due.) Here, and not in the sender, because Celery asks
    the result backend in between.

    Raises:
        InvalidOption, InvalidDueTime: what asks for it cannot be honoured.
    """
    envelope = _envelope(message)
    request = requested(services, options, envelope.get("eta"), args[1])
    if request is not None:
        checked_id(args[0])
        # A retry has one by itself: its task's default delay.
        if has_time(options) and not envelope.get("retries"):
            _refuse_second_time(args, options)
        expires = args[EXPIRES_AT] if len(args) > EXPIRES_AT else options.get("expires")
        if isinstance(expires, (int, float)) and not isinstance(expires, bool):
            envelope["expires"] = _expiry(request.expected_due(), expires).isoformat()
            # In protocol 1 it stands in the body, and stays what it is if the task is rescheduled.
            message.headers[EXPIRES_HEADER] = round(expires * 1000)
    if type(message) is not _TaskMessage:
        return message  # an AMQP class has messages of its own: the sender decides on these
    made: DecidedMessage = DecidedMessage._make(message)
    made.request = request
    return made


def _refuse_second_time(args: tuple[Any, ...], options: Mapping[str, Any]) -> None:
    """Raise InvalidOption where a call has a time of Celery's as well, which would not count."""
    for place, name in ((COUNTDOWN_AT, "countdown"), (ETA_AT, "eta")):
        value = args[place] if len(args) > place else options.get(name)
        if value is not None:
            raise InvalidOption(name, value, "none beside the time that the task is scheduled for")


class Sender:
    """Celery's ``send_task_message``: schedules a message, or passes it on."""

    def __init__(self, services: Services, send: Send) -> None:
        self._services = services
        self._send = send
        self._seen: set[bytes] = set()

    @property
    def channel(self) -> Any:
        """A channel that messages can be read with as a broker's."""
        return self._producer.channel

    @cached_property
    def _producer(self) -> Producer:
        broker = self._services.broker
        return recording_producer(broker.options, broker.transport)

    @cached_property
    def _is_for_amqp(self) -> bool:
        try:
            return self._services.broker.transport == "amqp"
        except InvalidSetting:  # nothing can be scheduled, but a plain call may go
            return False

    def __call__(self, producer: Any, name: str, message: Any, **options: Any) -> Any:
        try:
            request = message.request
        except AttributeError:
            # Made by another way than the app's AMQP, or copied since: decided here.
            request = requested(self._services, options, _envelope(message).get("eta"), name)
        theirs = {key: value for key, value in options.items() if not key.startswith(PREFIX)}
        theirs["headers"] = _with_words(options, _foreign(theirs.get("headers")))
        if request is not None and request.captured and self._is_left(message, theirs):
            _count_expiry_from_now(message)
            request = None
        if request is None:
            message.headers.pop(EXPIRES_HEADER, None)
            note_sent(message.properties["correlation_id"])
            if self._is_for_amqp:
                give_identity(message.properties)
            return self._send(producer, name, message, **theirs)
        return self._schedule(request, name, message, theirs)

    def _schedule(self, request: Request, name: str, message: Any, options: dict[str, Any]) -> None:
        # The receiving worker would hold a message with an eta once more, in its memory.
        _envelope(message)["eta"] = None
        message = message._replace(sent_event=None)
        task_id = checked_id(message.properties["correlation_id"])
        native_delay.undo(options, self._services.app.amqp)
        # Celery counted it from now; whoever publishes the message counts anew.
        options.pop("expiration", None)
        retry, policy = self._retry(options)

        # Of what was captured, the size was looked at before: its call must not fail.
        most = None if request.captured else self._services.settings.max_message
        producer = self._intercepting(request, task_id, policy if retry else _ONCE, most)
        # Retrying is this sender's: there is no broker connection here that Celery could revive.
        self._send(producer, name, message, retry=False, **options)

    def _intercepting(
        self, request: Request, task_id: str, policy: Mapping[str, Any], most: int | None
    ) -> InterceptingProducer:
        """A producer that publishes nothing, and has what it is given written into the store.

        *most*: how many bytes it may be; ``None`` where no caller could be told.
        """

        def take(message: OutgoingMessage) -> None:
            destination = self._destination(message)
            new = NewEntry(task_id, request.when, self._new_record(message, destination))
            if most is not None and new.record.size > most:
                raise MessageTooLarge(task_id, new.record.size, most)
            ready = Ready(request.entry(new), message, destination, policy)
            if request.take is not None:
                request.take(ready)
            else:
                write_one(self._services, ready)

        return InterceptingProducer(self._producer, take)

    def adopt(self, message: Message) -> Receipt:
        """Schedule a message that a broker delivered, as the options say that came along with it.

        No caller can be told of a conflict. So where none of its policies says otherwise, the task
        that is there is kept.

        Raises:
            DelayQError: why it was not scheduled.
        """
        asked = {name: value for name, value in message.properties.items() if _is_own(name)}
        request = requested(self._services, asked, None, _task_of(message))
        if request is None:
            raise InvalidOption("time", None, f"one of {AT} and {AFTER}")
        terms = replace(request.terms, conflict=request.terms.conflict or "keep")
        words = {name: asked[name] for name in LASTING if name in asked}
        ready = self.entry_of(message, replace(request, terms=terms), headers=words)
        return write_one(self._services, ready)

    def entry_of(
        self,
        message: Message,
        request: Request,
        *,
        queue: str | None = None,
        headers: Mapping[str, Any] | None = None,
    ) -> Ready:
        """The entry of a message that a broker delivered; nothing is written.

        Args:
            message: The message. What it says of an eta is left out.
            request: What is asked for.
            queue: Where it is to go, past every exchange; by default, to where it was sent.
            headers: More of them.

        Raises:
            DelayQError: it cannot be scheduled.
        """
        found: list[Ready] = []
        properties = {
            name: value
            for name, value in message.properties.items()
            if not _is_own(name) and name not in (*_OF_THE_WAY, *_APART)
        }
        body, content = _without_eta(message)
        all_headers = {**_foreign(message.headers), **(headers or {})}
        if "task" in all_headers:
            all_headers["eta"] = None
        exchange = "" if queue else message.delivery_info.get("exchange") or ""
        routing_key = queue or message.delivery_info["routing_key"]
        declared = None if exchange else self._services.app.amqp.queues.get(routing_key)
        task_id = checked_id(properties["correlation_id"])
        self._intercepting(replace(request, take=found.append), task_id, _ONCE, None).publish(
            body,
            exchange=exchange,
            routing_key=routing_key,
            declare=[declared] if declared is not None else [],
            # A message that was received is not compressed any more.
            compression=all_headers.pop("compression", None),
            headers=all_headers,
            **content,
            **properties,
        )
        return found[0]

    def _is_left(self, message: Any, options: dict[str, Any]) -> bool:
        """Whether a captured message is so large that it is left to Celery.

        Asked before the signals of publishing: whoever hears the first expects the second.
        """
        conf, most = self._services.app.conf, self._services.settings.max_message
        serializer = options.get("serializer") or conf.task_serializer
        compression = options.get("compression") or conf.task_compression
        try:
            body = encoded(self._producer, serializer, compression, message.body)
            size = len(body) + len(dumps({**message.headers, **(options["headers"] or {})}))
        except Exception:
            return False  # what is wrong with it, Celery's own way tells
        if size > most:
            logger.warning(
                "task %s: a message of %d bytes, with delayq_max_message %d, is left to Celery",
                message.properties["correlation_id"],
                size,
                most,
            )
        return size > most

    def _destination(self, message: OutgoingMessage) -> bytes:
        services = self._services
        options = services.broker.options
        key = None
        if services.broker.endpoint and not needs_relay(message):
            key = list_key(message.routing_key, message.properties.get("priority"), options)
        if key and services.store_is_broker:
            key = options.get("global_keyprefix", "") + key
            if key.startswith(f"{{{services.settings.prefix}:") and "}:" in key:
                # A message there would be taken for the store's own.
                raise InvalidOption("queue", message.routing_key, _NOT_OURS)
            return destination_for("L", key)
        return destination_for("R", relay_route(message, services.app.amqp.queues, key))

    def _new_record(self, message: OutgoingMessage, destination: bytes) -> NewRecord:
        record = message.new_record(destination, share=True)
        # A template is also what lets an expiry follow the due time.
        if record.name is None or record.name in self._seen or EXPIRES_HEADER in message.headers:
            return record
        # Seen once, it may never come again, and then a template costs more than it saves.
        if len(self._seen) >= SEEN_AT_MOST:
            self._seen.clear()
        self._seen.add(record.name)
        return message.new_record(destination, share=False)

    def _retry(self, options: dict[str, Any]) -> tuple[bool, Mapping[str, Any]]:
        conf = self._services.app.conf
        retry, policy = options.pop("retry", None), options.pop("retry_policy", None)
        wanted = conf.task_publish_retry if retry is None else retry
        return wanted, _known({**conf.task_publish_retry_policy, **(policy or {})})


def _without_eta(message: Message) -> tuple[Any, dict[str, Any]]:
    """The body of a message that was received, and what it is."""
    if "task" in message.headers:  # where its eta is
        content = {"content_type": message.content_type}
        return message.body, {**content, "content_encoding": message.content_encoding}
    return {**message.payload, "eta": None}, {"serializer": serializer_of(message.content_type)}


def asks_for_a_time(message: Message) -> bool:
    """Whether a message that a broker delivered still carries an option of this package's.

    No process that has a ``DelayQ`` sends one; one without lets it pass, as a property.
    """
    return any(_is_own(name) and name not in LASTING for name in message.properties)


def _is_own(name: str) -> bool:
    return name.startswith(PREFIX)


def _expiry(due: datetime, seconds: float) -> datetime:
    last = from_ms(LAST_MS)
    try:
        return min(due + timedelta(seconds=seconds), last)
    except OverflowError:  # Celery could add it to now, but the due time may be centuries later
        return last


def _count_expiry_from_now(message: Any) -> None:
    """Undo what ``decided`` made of a relative ``expires``."""
    expires_ms = message.headers.get(EXPIRES_HEADER)
    if expires_ms is not None:
        _envelope(message)["expires"] = _expiry(utc_now(), expires_ms / 1000).isoformat()


def _known(policy: Mapping[str, Any]) -> dict[str, Any]:
    return {name: policy[name] for name in _RETRY_POLICY if name in policy}


def _envelope(message: Any) -> dict[str, Any]:
    """Where id, eta and expires are: the headers, or in protocol 1 the body."""
    where: dict[str, Any] = message.body if isinstance(message.body, dict) else message.headers
    return where


def _task_of(message: Message) -> str:
    """The name of the task; in protocol 1 it stands in the body."""
    name: str = message.headers.get("task") or message.payload.get("task", "")
    return name


def _with_words(options: Mapping[str, Any], headers: dict[str, Any] | None) -> Any:
    """*headers*, and what a call says that outlives a retry, as headers do."""
    words = {name: options[name] for name in LASTING if isinstance(options.get(name), bool)}
    return {**(headers or {}), **words} if words else headers


def _foreign(headers: Any) -> Any:
    # A retry copies the headers of the message it came from; ours speak of that one only.
    if not headers:
        return headers
    return {name: value for name, value in headers.items() if name not in OWN_HEADERS}
