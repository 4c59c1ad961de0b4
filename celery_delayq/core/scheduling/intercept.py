"""Decides once, for each message that Celery makes, whether it becomes an entry of the store.

    apply_async --> as_task_v2       scheduled by an option, or captured by its eta?
                        |
                    router, result backend
                        |
                    Interceptor -- no --> Celery's sender --> the broker
                        |
                        +--- yes --> Celery's sender --> signals, kombu --> entry --> store
                                                                              |
    the call <------- Request.answer <----------------------------------------+

Every way to send a task passes here: ``apply_async``, ``send_task``, signatures, retries, each part
of a canvas. Celery calls the app's ``AMQP`` to make each message (``as_task_v2``), to route it
(``Router``), and to get the function that sends it (``_create_task_sender``). The rest of ``AMQP``
stays Celery's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any
from uuid import UUID

from celery.app.amqp import AMQP
from celery.utils.imports import symbol_by_name
from kombu import Producer

from .. import clock
from ..errors import (
    AlreadyScheduled,
    InvalidOption,
    InvalidSetting,
    MessageTooLarge,
    StoreError,
)
from ..message import broker
from ..message.broker import check_encodable
from ..message.headers import (
    EXPIRES_HEADER,
    HOLD_HEADER,
    Hold,
    continues,
    foreign,
    give_identity,
    hand_on,
    warn_of_chord,
    warn_of_expiry,
)
from ..message.outgoing import (
    OutgoingMessage,
    dumps,
    encoded,
    header_of,
    record_of,
    recorded,
    recording_producer,
)
from ..services import Services, find
from ..store import NewEntry, Receipt, checked_id
from ..store.record import NewRecord
from ..text import logger_of
from . import deciding
from .left import Broker, Refusals, celerys, leave
from .options import (
    LASTING,
    PART,
    PREFIX,
)
from .request import Request, under_way
from .writing import Ready, write_one

logger = logger_of(__name__)

SEEN_AT_MOST = 1000  # names of templates that a process remembers to have seen
ONCE = {"max_retries": 0}
_RETRY_POLICY = ("max_retries", "interval_start", "interval_step", "interval_max")

_LEFT = "task %s is left to Celery%s, as are all captured calls of the next %.0f s: %s"
_MARKED = " as well, marked as a possible duplicate"
_REFUSED_LATELY = "task %s is left to Celery: the store refused a captured call a moment ago"
_PROTOCOL = "2, Celery's default: no message of protocol 1 can be scheduled"
# Options of a call that publishes at once.
_OF_PUBLISHING = ("immediate", "event_dispatcher")
_NOT_PUBLISHED = "none: the call publishes nothing, and a scanner does later"
_OWN_BROKER = (
    "none, or one that publishes as the app's own do: a scheduled task goes to the app's broker;"
    " for another broker, use an app of that broker"
)

Send = Callable[..., Any]


class SchedulingMixin:
    """Lets an ``AMQP`` class schedule messages."""

    app: Any
    is_celerys_own = False

    def as_task_v2(self, *args: Any, **options: Any) -> Any:
        message = super().as_task_v2(*args, **options)  # type: ignore[misc]
        services = find(self.app)
        return message if services is None else deciding.decide(services, message, args, options)

    def Router(self, *args: Any, **options: Any) -> Any:  # noqa: N802 - Celery's name
        router = super().Router(*args, **options)  # type: ignore[misc]
        services = find(self.app)
        return broker.noting(router) if services and _is_for_amqp(services) else router

    def _create_task_sender(self) -> Send:
        send: Send = super()._create_task_sender()  # type: ignore[misc]
        services = find(self.app)
        return send if services is None else Interceptor(services, send)


def _is_for_amqp(services: Services) -> bool:
    """Return whether the broker speaks AMQP; there, Celery delays an eta by queues."""
    try:
        return services.broker.transport == "amqp"
    except InvalidSetting:  # nothing can be scheduled, but plain calls may pass
        return False


class SchedulingAMQP(SchedulingMixin, AMQP):
    """Celery's own ``AMQP``, able to schedule."""

    is_celerys_own = True


def scheduling_amqp(base: Any) -> Any:
    """Return the app's AMQP class, able to schedule; by name if possible, as apps get pickled."""
    base = symbol_by_name(base)
    if issubclass(base, SchedulingMixin):  # of a copied app
        return base
    if base is AMQP:
        return f"{__name__}:{SchedulingAMQP.__name__}"
    return type(base.__name__, (SchedulingMixin, base), {})


class TextIds:
    """Gives a result the id of its message: a ``UUID`` becomes text.

    Celery's backends tell a result that its task has ended only if both are the same.
    """

    def __init__(self, id: Any, *args: Any, **kwargs: Any) -> None:
        text = str(id) if isinstance(id, UUID) else id
        super().__init__(text, *args, **kwargs)  # type: ignore[call-arg]


class Interceptor:
    """Celery's ``send_task_message``: schedules a message, or passes it on.

    Only here a message is complete and not yet published.
    """

    def __init__(self, services: Services, send: Send) -> None:
        self.services = services
        self._send = send
        self._seen: set[bytes] = set()
        self.refusals = Refusals()
        self._has_warned = False
        self.warned_chords: dict[str, float] = {}

    @cached_property
    def producer(self) -> Producer:
        """A producer that records a message as the broker's producer would publish it."""
        broker = self.services.broker
        return recording_producer(broker.options, broker.transport)

    @cached_property
    def is_for_amqp(self) -> bool:
        return _is_for_amqp(self.services)

    def __call__(self, producer: Any, name: str, message: Any, *where: Any, **options: Any) -> Any:
        try:
            request = message.request
        except AttributeError:
            request = self._late_request(name, message, options)
        hold = self._hold_of(message, dict(options.get("headers") or {}))
        theirs = _for_celery(options)
        part = options.get(PART)
        if part is not None:
            return self._keep(partial(part.keeper, self, request), name, message, where, theirs)
        if request is not None and not self._leaves(request, producer, message, theirs, hold):
            if hold is not None:
                request = replace(request, entry_options=request.entry_options.holding(hold))
            return self._schedule(request, name, message, where, theirs)
        if hold is not None:
            theirs["headers"] = {**(theirs.get("headers") or {}), HOLD_HEADER: hold._asdict()}
        message.headers.pop(EXPIRES_HEADER, None)
        call = under_way.get()
        if call is not None:
            call.answer.sent.append(message.properties["correlation_id"])
        if self.is_for_amqp:
            give_identity(message.properties)
        return self._send(producer, name, message, *where, **theirs)

    def _leaves(
        self, request: Request, producer: Any, message: Any, options: dict[str, Any], hold: Any
    ) -> bool:
        """Return whether Celery sends a captured message; else note how it would publish it."""
        is_elsewhere = self._goes_elsewhere(request, producer)
        for name in _OF_PUBLISHING:
            if options.get(name):
                is_elsewhere = True
                if not request.captured:
                    raise InvalidOption(name, options[name], _NOT_PUBLISHED)
        if not request.captured:
            return False
        # A task that puts itself off has no eta yet.
        eta = message.headers.get("eta") or request.expected_due().isoformat()
        request.answer.left = is_elsewhere or self._is_left(message, options)
        if request.answer.left:
            leave(message.headers, eta)
            return True
        given = celerys(options, self.services.app.conf)
        name = request.delivery.name if request.delivery else ""
        request.answer.broker = Broker(producer, given, eta, hold, name, names=self.is_for_amqp)
        return False

    def _goes_elsewhere(self, request: Request, producer: Any) -> bool:
        """Return whether a captured message must be left to its producer, which is not the app's.

        A canvas and beat hand on producers that lead to the app's broker, so it counts where one
        leads, and not whether one was passed.

        Raises:
            InvalidOption: likewise, but the call asks for a time by an option of this package.
        """
        connection = producer.connection
        # One with an exchange or a compression of its own publishes other messages.
        if isinstance(producer, Producer) and not (producer.exchange.name or producer.compression):
            # kombu shares a pool between apps whose first broker is the same.
            own = self.services.app.amqp.producer_pool.connections
            if connection in own._dirty or self.services.broker.is_at(connection):
                return False
        if not request.captured:
            raise InvalidOption("connection or producer", connection.as_uri(), _OWN_BROKER)
        return True

    def _keep(
        self, keeper: Callable[..., Any], name: str, message: Any, where: Any, options: Any
    ) -> None:
        """Let a canvas keep the message of one of its parts."""
        if message.headers.get("eta"):
            broker.undo(options, self.services.app.amqp)
        options.pop("expiration", None)
        producer = keeper(message, options)
        message = message._replace(sent_event=None)
        self._send(producer, name, message, *where, **{**options, "retry": False})

    def _hold_of(self, message: Any, headers: Mapping[str, Any]) -> Hold | None:
        """Return the hold that a message takes along, as it continues the run that sends it."""
        running = self.services.app.current_worker_task
        sender = {} if running is None else running.request
        header = headers.get(HOLD_HEADER, sender.get(HOLD_HEADER))
        hold = Hold.of(header, message.properties["correlation_id"])
        if hold is None:
            if held := sender.get(HOLD_HEADER):
                hand_on(held, sender.get("id"), message.body)
            return None
        if HOLD_HEADER in headers and sender.get("id") not in (None, hold.id):
            return hold  # the last part of a canvas that replaced the run
        made = message.body if isinstance(message.body, dict) else message.headers
        return hold if continues({**made, **headers}, sender) else None

    def _late_request(self, name: str, message: Any, options: Mapping[str, Any]) -> Request | None:
        """Decide about a message that the app's AMQP has not made, or that was copied since."""
        is_v1 = isinstance(message.body, dict)
        eta = (message.body if is_v1 else message.headers).get("eta")
        request = deciding.request_of(self.services, options, eta, name)
        if request is None:
            return None
        if is_v1:
            error = InvalidSetting("task_protocol", 1, _PROTOCOL)
            # A task that puts itself off has no eta for which a worker would wait.
            if not (request.captured and eta):
                raise error
            if not self._has_warned:
                logger.warning("tasks with an eta are left to Celery: %s", error)
                self._has_warned = True
            return None
        message.properties["correlation_id"] = checked_id(message.properties["correlation_id"])
        return request

    def _is_left(self, message: Any, options: dict[str, Any]) -> bool:
        """Return whether the store cannot take a captured message, so that Celery sends it.

        Called before Celery's signals of publishing, which come in pairs.
        """
        if not self.services.has_store:
            return True
        if self.refusals.is_recent:
            logger.info(_REFUSED_LATELY, message.properties["correlation_id"])
            return True
        conf, most = self.services.app.conf, self.services.settings.max_message
        serializer = options.get("serializer") or conf.task_serializer
        compression = options.get("compression") or conf.task_compression
        try:
            body = encoded(self.producer, serializer, compression, message.body)
            size = len(body) + len(dumps({**message.headers, **(options.get("headers") or {})}))
        except Exception:
            return False  # Celery's own way raises the error
        if size > most:
            logger.warning(
                "task %s: a message of %d bytes, with delayq_max_message %d, is left to Celery",
                message.properties["correlation_id"],
                size,
                most,
            )
        return size > most

    def _schedule(
        self, request: Request, name: str, message: Any, where: Any, options: dict[str, Any]
    ) -> None:
        if message.headers.get("eta"):
            broker.undo(options, self.services.app.amqp)
        embed = message.body[2]
        if embed.get("chord") or embed.get("chain"):
            seconds = request.when.seconds_from(clock.utc_now())
            warn_of_chord(self.services.app, message, seconds, self.warned_chords)
        # A worker would hold a message with an eta in its memory.
        message.headers["eta"] = None
        if message.headers.get("expires"):
            # Celery counted it from now; the hand-over counts it from the delivery.
            options.pop("expiration", None)
        options.pop("timezone", None)  # of a countdown; a message cannot have it
        conf = self.services.app.conf
        retry, own = options.pop("retry", None), options.pop("retry_policy", None)
        publish_policy = {**conf.task_publish_retry_policy, **(own or {})}
        policy = {each: publish_policy[each] for each in _RETRY_POLICY if each in publish_policy}
        retries = conf.task_publish_retry if retry is None else retry
        task_id = message.properties["correlation_id"]
        entrance = _Entrance(self, request, task_id, policy if retries else ONCE)
        # The store retries: there is no broker connection here that Celery could revive.
        if request.answer.broker is None:
            message = message._replace(sent_event=None)
        self._send(entrance, name, message, *where, retry=False, **options)

    def entry(
        self,
        message: OutgoingMessage,
        request: Request,
        task_id: str,
        policy: Mapping[str, Any],
        *,
        limited: bool = False,
    ) -> Ready:
        """Return the entry of a complete message, as *request* describes it.

        Raises:
            MessageTooLarge: it is *limited*, and has more than ``delayq_max_message`` bytes.
            InvalidOption: its queue's list would be a key of the store, or its broker speaks AMQP
                and that cannot carry it.
        """
        services, store = self.services, self.services.configured
        if self.is_for_amqp:
            check_encodable(message.message)
        header = header_of(
            message,
            services.broker,
            services.app.amqp.queues,
            direct=store.store_is_broker,
            prefix=store.settings.prefix,
        )
        record = self._new_record(message, header)
        if limited and record.size > store.settings.max_message:
            raise MessageTooLarge(task_id, record.size, store.settings.max_message)
        new = NewEntry(task_id, request.when, record, delivery=request.delivery)
        return Ready(request.entry_options.of(new), message, header, policy)

    def _new_record(self, message: OutgoingMessage, header: bytes) -> NewRecord:
        record = record_of(message.message, header, message.labels, share=True)
        # With a template, an expiry can follow the due time.
        name = record.name
        if name is None or name in self._seen or EXPIRES_HEADER in message.headers:
            return record
        # The first of its kind may be the only one; then a template costs more than it saves.
        if len(self._seen) >= SEEN_AT_MOST:
            self._seen.clear()
        self._seen.add(name)
        return record_of(message.message, header, message.labels, share=False)


def _for_celery(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a call for Celery's sender."""
    theirs = {key: value for key, value in options.items() if not key.startswith(PREFIX)}
    # Options of a call that outlive a retry travel as headers.
    words = {key: options[key] for key in LASTING if isinstance(options.get(key), bool)}
    if words or theirs.get("headers"):
        theirs["headers"] = {**foreign(theirs.get("headers") or {}), **words}
    return theirs


@dataclass
class _Entrance:
    """A producer for Celery's sender that writes into the store instead."""

    interceptor: Interceptor
    request: Request
    task_id: str
    policy: Mapping[str, Any]
    is_over: bool = False

    def publish(self, body: Any, **options: Any) -> None:
        if self.is_over:
            self._publish_event(body, options)
            return
        self.is_over = True
        interceptor, request = self.interceptor, self.request
        message = recorded(interceptor.producer, body, **options)
        # A captured message's size was checked before: its call must not fail.
        limited = not request.captured
        ready = interceptor.entry(message, request, self.task_id, self.policy, limited=limited)
        # A task's own `apply_async` may send two messages: the first is the call's.
        if not request.writes and request.answer.ready is None:
            request.answer.ready = ready
            return
        if request.answer.ready and request.answer.ready.new.task_id == self.task_id:
            # Otherwise this entry would exist, although its caller gets an error.
            raise AlreadyScheduled(self.task_id)
        began = 0.0 if request.answer.broker is None else clock.monotonic()
        try:
            receipt = write_one(
                interceptor.services, ready, given_out=request.given_out, frozen=request.frozen
            )
        except StoreError as error:
            if request.answer.broker is None:
                raise
            self._note(error, began)
            request.answer.broker.publish(body, options, uncertain=error.may_have_run)
        else:
            request.answer.receipt = request.answer.receipt or receipt
            if request.captured:
                self._warn_of_expiry(options["headers"], receipt)

    def _publish_event(self, event: Any, options: dict[str, Any]) -> None:
        """Publish Celery's event that it sent the message, if it did."""
        if self.request.answer.broker is not None and self.request.answer.left:
            self.request.answer.broker.publish_event(event, options)

    def _warn_of_expiry(self, headers: Mapping[str, Any], receipt: Receipt) -> None:
        """Warn of a retry, or of a task that puts itself off, beyond its expiry."""
        if headers.get("expires") and EXPIRES_HEADER not in headers and not receipt.existed:
            warn_of_expiry([(self.task_id, receipt.due_ms, headers["expires"])])

    def _note(self, error: StoreError, began: float) -> None:
        """Note that the store did not take a captured message."""
        self.request.answer.left = True
        seconds = self.interceptor.refusals.note(began)
        mark = _MARKED if error.may_have_run else ""
        logger.warning(_LEFT, self.task_id, mark, seconds, error)
