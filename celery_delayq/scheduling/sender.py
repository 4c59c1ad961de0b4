"""The one place where a message is complete and not yet published.

Celery builds its sender in ``AMQP._create_task_sender``. Everything that sends a task ends
there: ``apply_async``, ``send_task``, signatures, retries, every part of a canvas.

    as_task_v2 ---> decided ---> routing, signals ---> Sender ---> published by Celery
                                                          \
                                                           ---> its entry is written
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from kombu import Producer

from ..errors import InvalidSetting, MessageTooLarge
from ..logs import logger_of
from ..message import native_delay
from ..message.destination import destination_of
from ..message.headers import EXPIRES_HEADER, foreign
from ..message.identity import give_identity
from ..message.outgoing import (
    InterceptingProducer,
    OutgoingMessage,
    dumps,
    encoded,
    recording_producer,
)
from ..services import Services
from ..store import NewEntry, checked_id
from ..store.record import NewRecord
from .decision import count_expiry_from_now
from .request import LASTING, PREFIX, Ready, Request, note_sent, requested
from .writing import write_one

logger = logger_of(__name__)

SEEN_AT_MOST = 1000  # names of templates that a process remembers to have seen
ONCE = {"max_retries": 0}
_RETRY_POLICY = ("max_retries", "interval_start", "interval_step", "interval_max")

_PROTOCOL = "2, Celery's default: no message of protocol 1 can be scheduled"

Send = Callable[..., Any]


class Sender:
    """Celery's ``send_task_message``: schedules a message, or passes it on."""

    def __init__(self, services: Services, send: Send) -> None:
        self.services = services
        self._send = send
        self._seen: set[bytes] = set()

    @cached_property
    def _producer(self) -> Producer:
        broker = self.services.broker
        return recording_producer(broker.options, broker.transport)

    @cached_property
    def _is_for_amqp(self) -> bool:
        try:
            return self.services.broker.transport == "amqp"
        except InvalidSetting:  # nothing can be scheduled, but a plain call may go
            return False

    def __call__(self, producer: Any, name: str, message: Any, *where: Any, **options: Any) -> Any:
        try:
            request = message.request
        except AttributeError:
            # Made by another way than the app's AMQP, or copied since, or of protocol 1.
            request = self._requested(name, message, options)
        theirs = {key: value for key, value in options.items() if not key.startswith(PREFIX)}
        theirs["headers"] = _with_words(options, foreign(theirs.get("headers")))
        if request is not None and request.captured and self._is_left(message, theirs):
            count_expiry_from_now(message)
            request = None
        if request is None:
            message.headers.pop(EXPIRES_HEADER, None)
            note_sent(message.properties["correlation_id"])
            if self._is_for_amqp:
                give_identity(message.properties)
            return self._send(producer, name, message, *where, **theirs)
        return self._schedule(request, name, message, where, theirs)

    def _requested(self, name: str, message: Any, options: Mapping[str, Any]) -> Request | None:
        is_v1 = isinstance(message.body, dict)
        eta = (message.body if is_v1 else message.headers).get("eta")
        request = requested(self.services, options, eta, name)
        if request is not None and is_v1:
            raise InvalidSetting("task_protocol", 1, _PROTOCOL)
        return request

    def _schedule(
        self, request: Request, name: str, message: Any, where: Any, options: dict[str, Any]
    ) -> None:
        # The receiving worker would hold a message with an eta once more, in its memory.
        message.headers["eta"] = None
        message = message._replace(sent_event=None)
        task_id = checked_id(message.properties["correlation_id"])
        native_delay.undo(options, self.services.app.amqp)
        # Celery counted it from now; whoever publishes the message counts anew.
        options.pop("expiration", None)
        retry, policy = self._retry(options)

        # Of what was captured, the size was looked at before: its call must not fail.
        most = None if request.captured else self.services.settings.max_message
        producer = self.intercepting(request, task_id, policy if retry else ONCE, most)
        # Retrying is this sender's: there is no broker connection here that Celery could revive.
        self._send(producer, name, message, *where, retry=False, **options)

    def intercepting(
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
                write_one(self.services, ready)

        return InterceptingProducer(self._producer, take)

    def _is_left(self, message: Any, options: dict[str, Any]) -> bool:
        """Whether a captured message is so large that it is left to Celery.

        Asked before the signals of publishing: whoever hears the first expects the second.
        """
        conf, most = self.services.app.conf, self.services.settings.max_message
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
        services = self.services
        return destination_of(
            message,
            services.broker,
            services.app.amqp.queues,
            direct=services.store_is_broker,
            prefix=services.settings.prefix,
        )

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
        conf = self.services.app.conf
        retry, policy = options.pop("retry", None), options.pop("retry_policy", None)
        wanted = conf.task_publish_retry if retry is None else retry
        return wanted, _known({**conf.task_publish_retry_policy, **(policy or {})})


def _known(policy: Mapping[str, Any]) -> dict[str, Any]:
    return {name: policy[name] for name in _RETRY_POLICY if name in policy}


def _with_words(options: Mapping[str, Any], headers: dict[str, Any] | None) -> Any:
    """*headers*, and what a call says that outlives a retry, as headers do."""
    words = {name: options[name] for name in LASTING if isinstance(options.get(name), bool)}
    return {**(headers or {}), **words} if words else headers
