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

A ``Request`` is what a call asks for, as it travels through Celery to the message, and what became
of it. Every way to send a task passes the app's ``AMQP``: ``apply_async``, ``send_task``,
signatures, retries, each part of a canvas. Celery calls it to make each message (``as_task_v2``),
to route it (``Router``), and to get the function that sends it (``_create_task_sender``), here an
``Interceptor``. The rest of ``AMQP`` stays Celery's. Ids of results are text, as in the message.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from functools import cached_property, partial
from typing import Any
from uuid import UUID

import celery.app.amqp
from celery.app.amqp import AMQP
from celery.utils.imports import symbol_by_name
from kombu import Producer

from .. import clock
from ..clock import When, after, at, from_ms
from ..errors import (
    AlreadyScheduled,
    InvalidDueTime,
    InvalidOption,
    InvalidSetting,
    MessageTooLarge,
    NotScheduled,
    StoreError,
)
from ..message import broker
from ..message.broker import check_encodable
from ..message.headers import (
    CAPTURE_HEADER,
    EXPIRES_HEADER,
    HOLD_HEADER,
    Hold,
    continues,
    expiry_after,
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
from ..store import Delivery, NewEntry, Receipt, checked_id
from ..store.record import NewRecord
from ..text import logger_of
from .options import (
    AFTER,
    AT,
    LASTING,
    NAMES,
    OPTION,
    PART,
    PLAIN,
    PREFIX,
    EntryOptions,
    entry_options_of,
    own_options,
    value_of,
)
from .writing import Broker, Ready, Refusals, celerys, leave, write_one

logger = logger_of(__name__)

ONCE = {"max_retries": 0}
_SEEN_AT_MOST = 1000  # names of templates that a process remembers to have seen
_RETRY_POLICY = ("max_retries", "interval_start", "interval_step", "interval_max")
# Places among the arguments of AMQP.as_task_v2. Celery fills them; a program may name them.
_PLACES = {"task_id": 0, "name": 1, "countdown": 4, "eta": 5, "expires": 8}
# Headers with ids. A UUID in them becomes text; Celery alone cannot send one by RabbitMQ.
_IDS = ("id", "root_id", "parent_id", "group")
# Options of a call that publishes at once.
_OF_PUBLISHING = ("immediate", "event_dispatcher")

_NO_SECOND = "none beside the time that the task is scheduled for"
_NOT_PUBLISHED = "none: the call publishes nothing, and a scanner does later"
_OWN_BROKER = (
    "none, or one that publishes as the app's own do: a scheduled task goes to the app's broker;"
    " for another broker, use an app of that broker"
)
_PROTOCOL = "2, Celery's default: no message of protocol 1 can be scheduled"
_LEFT = "task %s is left to Celery%s, as are all captured calls of the next %.0f s: %s"
_MARKED = " as well, marked as a possible duplicate"
_REFUSED_LATELY = "task %s is left to Celery: the store refused a captured call a moment ago"

_Send = Callable[..., Any]


@dataclass(eq=False)
class Answer:
    """What became of a request.

    Attributes:
        ready: The entry for the caller to write.
        receipt: The store's.
        broker: Publishes a captured message that the store does not take.
        left: Whether a captured message was left to Celery.
        sent: The ids of the messages that the call sent instead of scheduling them.
    """

    ready: Ready | None = None
    receipt: Receipt | None = None
    broker: Broker | None = None
    left: bool = False
    sent: list[str] = field(default_factory=list)

    # A task's own `apply_async` may copy its options; the caller reads this one.
    def __copy__(self) -> Answer:
        return self

    def __deepcopy__(self, _: object) -> Answer:
        return self


@dataclass(frozen=True, eq=False)
class Request:
    """The due time and options of a message to schedule.

    It travels as an option of ``apply_async``, through the task, canvas and router code that every
    other option passes. Celery drops a sender's return value, so the answer comes back in it.

    Attributes:
        when: The due time.
        delivery: The message that a broker delivered, if the call is about one.
        given_out: Whether a caller may know the task's id already.
        frozen: Whether a signature had the task's id already.
        writes: False: the entry is only made, and the caller writes it.
        captured: The call has an eta, or is put off, and has no option of this package. If the
            store does not take the message, it is left to Celery.
        entry_options: The options of the entry.
        answer: What became of it.
    """

    when: When
    delivery: Delivery | None = None
    given_out: bool = True
    frozen: bool = False
    writes: bool = True
    captured: bool = False
    entry_options: EntryOptions = PLAIN
    answer: Answer = field(default_factory=Answer)

    def sent_by(self, apply_async: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Call ``apply_async(*args, **options)`` with this request among its options."""
        token = under_way.set(self)
        try:
            return apply_async(*args, **{OPTION: self, **options})
        finally:
            under_way.reset(token)

    def refuse_sent(self, result: Any) -> None:
        """Check the result of a call that scheduled nothing.

        Raises:
            NotScheduled: the call sent this result's task at once.
        """
        # An `apply_async` of the task's own may have sent other messages on the way.
        sent = self.answer.sent
        task_id = getattr(result, "id", sent[0] if sent else None)
        if task_id in sent:
            raise NotScheduled(str(task_id))

    def expected_due(self) -> datetime:
        """Return the due time by this machine's clock; the store's own is in the receipt."""
        if self.when.mode == "at":
            return from_ms(self.when.ms)
        return clock.utc_now() + timedelta(milliseconds=self.when.ms)


# The request of the call under way: an `apply_async` that drops options sends a message without it.
under_way: ContextVar[Request | None] = ContextVar("celery_delayq_under_way", default=None)


def scheduling_amqp(base: Any) -> Any:
    """Return the app's AMQP class, able to schedule; by name if possible, as apps get pickled."""
    base = symbol_by_name(base)
    if issubclass(base, _SchedulingMixin):  # of a copied app
        return base
    if base is AMQP:
        return f"{__name__}:{SchedulingAMQP.__name__}"
    return type(base.__name__, (_SchedulingMixin, base), {})


class _SchedulingMixin:
    """Lets an ``AMQP`` class schedule messages."""

    app: Any
    is_celerys_own = False

    def as_task_v2(self, *args: Any, **options: Any) -> Any:
        message = super().as_task_v2(*args, **options)  # type: ignore[misc]
        services = find(self.app)
        return message if services is None else _decide(services, message, args, options)

    def Router(self, *args: Any, **options: Any) -> Any:  # noqa: N802 - Celery's name
        router = super().Router(*args, **options)  # type: ignore[misc]
        services = find(self.app)
        return broker.noting(router) if services and _is_for_amqp(services) else router

    def _create_task_sender(self) -> _Send:
        send: _Send = super()._create_task_sender()  # type: ignore[misc]
        services = find(self.app)
        return send if services is None else Interceptor(services, send)


class SchedulingAMQP(_SchedulingMixin, AMQP):
    """Celery's own ``AMQP``, able to schedule."""

    is_celerys_own = True


def _is_for_amqp(services: Services) -> bool:
    """Return whether the broker speaks AMQP; there, Celery delays an eta by queues."""
    try:
        return services.broker.transport == "amqp"
    except InvalidSetting:  # nothing can be scheduled, but plain calls may pass
        return False


# Undocumented. If it is gone, `libraries` says so; an import of it would say less.
_TaskMessage: Any = getattr(celery.app.amqp, "task_message", tuple)


class _DecidedMessage(_TaskMessage):
    """Celery's task message with the request that schedules it, or ``None``."""

    request: Request | None


def _decide(
    services: Services, message: Any, args: tuple[Any, ...], options: dict[str, Any]
) -> Any:
    """Decide whether to schedule a message; *args* and *options* made it.

    A relative ``expires`` of such a message starts at the due time. (Celery starts it at the call,
    so a task may expire before it is due.) A naive one is UTC, as Celery's workers read it, and is
    made aware. This happens here and not in the sender, because Celery calls the result backend in
    between.

    Raises:
        InvalidOption, InvalidDueTime: an option is invalid.
    """
    headers = message.headers
    for name in _IDS:
        if isinstance(headers.get(name), UUID):
            headers[name] = str(headers[name])
    message.properties["correlation_id"] = headers["id"]
    given = {**options, **{name: args[at] for name, at in _PLACES.items() if at < len(args)}}
    part = options.get(PART)
    if part is not None:
        part.note(headers, given)
    # A retry always has a time: its task's default delay.
    beside = {} if headers.get("retries") else given
    request = request_of(services, options, headers.get("eta"), given["name"], beside)
    if request is not None:
        message.properties["correlation_id"] = checked_id(headers["id"])
        expires = given.get("expires")
        if isinstance(expires, (int, float)) and not isinstance(expires, bool):
            headers["expires"] = expiry_after(request.expected_due(), expires).isoformat()
            headers[EXPIRES_HEADER] = round(expires * 1000)
        elif expires:
            headers["expires"] = clock.celery_time(headers["expires"]).isoformat()
    if type(message) is not _TaskMessage:
        return message  # an AMQP class with messages of its own: the sender decides
    made: _DecidedMessage = _DecidedMessage._make(message)
    made.request = request
    return made


def request_of(
    services: Services,
    options: Mapping[str, Any],
    eta: str | None,
    task: str,
    beside: Mapping[str, Any] | None = None,
) -> Request | None:
    """Return the request to schedule a message: by its options or its eta; else ``None``.

    Args:
        services: The services of the sending app.
        options: The call's options.
        eta: The message's eta.
        task: The name of its task, whose attributes are the options' defaults.
        beside: Options that may have a second time, Celery's, which is an error.

    Raises:
        InvalidOption: an option of this package is unknown or invalid, or there are two times.
        InvalidDueTime: a value is no time.
    """
    times = own_options(options)
    of_entry = {name: times.pop(name) for name in NAMES if name in times}
    given = {name: times.pop(name) for name in LASTING if name in times}
    lasting = {name: value_of(name, given) for name in given}
    tasks = services.app._tasks
    # `app.tasks` would finalize the app and make all tasks; a task that is called exists already.
    known = tasks.get(task) or services.app.tasks.get(task)
    request: Request | None = None
    if times:
        request = _by_option(services, times, beside or {})
    # A retry has the options of its call among its headers.
    elif eta and wants_capture(known, {**(options.get("headers") or {}), **lasting}):
        request = _by_eta(services, eta, task, is_asked=bool(of_entry))
    if request is not None:
        return replace(request, entry_options=entry_options_of(of_entry, known))
    if of_entry:
        name = next(iter(of_entry))
        raise InvalidOption(name, of_entry[name], f"a due time beside it: {AT} or {AFTER}")
    return None


def _by_option(services: Services, times: Mapping[str, Any], beside: Mapping[str, Any]) -> Request:
    if len(times) > 1:
        raise InvalidOption("time", dict(times), f"only one of {AT} and {AFTER}")
    ((name, value),) = times.items()
    if name == AT:
        request = Request(at(value, services.timezone))
    elif name == AFTER:
        request = Request(after(value))
    else:
        request = value
    for name in ("countdown", "eta"):
        if beside.get(name) is not None:
            raise InvalidOption(name, beside[name], _NO_SECOND)
    return request


def _by_eta(services: Services, eta: str, task: str, *, is_asked: bool) -> Request | None:
    settings = services.settings
    if not settings.capture_eta:
        return None
    try:
        when = at(clock.celery_time(eta), timezone.utc)
    except InvalidDueTime as error:
        if is_asked:
            raise
        logger.warning("a call of %s is left to Celery: its eta %s", task, error)
        return None
    if is_asked:  # it has options that only an entry can have, so Celery must not send it
        return Request(when)
    if not services.has_store:
        return None
    ahead = when.seconds_from(clock.utc_now())
    return Request(when, captured=True) if ahead >= settings.min_delay else None


def wants_capture(task: Any, options: Mapping[str, Any]) -> bool:
    """Return whether a task may be captured by its ``eta``.

    Args:
        task: The task, whose attribute is the default; ``None`` if it is not known.
        options: The call's options, among others.
    """
    return options.get(CAPTURE_HEADER, getattr(task, CAPTURE_HEADER, True)) is not False


class Interceptor:
    """Celery's ``send_task_message``: schedules a message, or passes it on.

    Only here a message is complete and not yet published.
    """

    def __init__(self, services: Services, send: _Send) -> None:
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
        # A task that defers itself has no eta yet.
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
        hold = Hold.of(header, message.properties["correlation_id"]) if header else None
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
        request = request_of(self.services, options, eta, name)
        if request is None:
            return None
        if is_v1:
            error = InvalidSetting("task_protocol", 1, _PROTOCOL)
            # A task that defers itself has no eta for which a worker would wait.
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
        new = request.entry_options.of(new)
        return Ready(new, message, header, policy, request.given_out, request.frozen)

    def _new_record(self, message: OutgoingMessage, header: bytes) -> NewRecord:
        record = record_of(message.message, header, message.labels, share=True)
        # With a template, an expiry can follow the due time.
        name = record.name
        if name is None or name in self._seen or EXPIRES_HEADER in message.headers:
            return record
        # The first of its kind may be the only one; then a template costs more than it saves.
        if len(self._seen) >= _SEEN_AT_MOST:
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
        ready = interceptor.entry(
            message, request, self.task_id, self.policy, limited=not request.captured
        )
        # A task's own `apply_async` may send two messages: the first is the call's.
        if not request.writes and request.answer.ready is None:
            request.answer.ready = ready
            return
        if request.answer.ready and request.answer.ready.new.task_id == self.task_id:
            # Otherwise this entry would exist, although its caller gets an error.
            raise AlreadyScheduled(self.task_id)
        began = 0.0 if request.answer.broker is None else clock.monotonic()
        try:
            receipt = write_one(interceptor.services, ready)
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
        """Warn of a retry, or of a task that defers itself, beyond its expiry."""
        if headers.get("expires") and EXPIRES_HEADER not in headers and not receipt.existed:
            warn_of_expiry([(self.task_id, receipt.due_ms, headers["expires"])])

    def _note(self, error: StoreError, began: float) -> None:
        """Note that the store did not take a captured message."""
        self.request.answer.left = True
        seconds = self.interceptor.refusals.note(began)
        mark = _MARKED if error.may_have_run else ""
        logger.warning(_LEFT, self.task_id, mark, seconds, error)


class TextIds:
    """Gives a result the id of its message: a ``UUID`` becomes text.

    Celery's backends tell a result that its task has ended only if both are the same.
    """

    def __init__(self, id: Any, *args: Any, **kwargs: Any) -> None:
        text = str(id) if isinstance(id, UUID) else id
        super().__init__(text, *args, **kwargs)  # type: ignore[call-arg]
