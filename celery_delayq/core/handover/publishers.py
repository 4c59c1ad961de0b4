"""How a window of entries is sent to a broker, and the verdict on each of them.

    OneByOne ---> any transport of kombu: the first failure ends the window
      |-- Pushing ----> Redis: all messages for one list with one command
      |-- Queueing ---> Amazon SQS: its errors have other meanings
      '-- Confirming -> AMQP: many messages under way, then one wait for all confirms

    sent      the broker has it (and confirmed it, if the transport can)
    refused   the broker rejected it, or it cannot be sent: counts as a refusal; if one of several
              queues rejected it, the others may have it
    denied    this user lacks a right: it waits, and nothing counts
    dead      the record cannot be read
    unknown   the link broke or timed out after sending began: it may have arrived
    unsent    it was not attempted

At the end: a connection with time limits, and the publisher for its transport.
"""

from __future__ import annotations

import inspect
import json
import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple
from uuid import NAMESPACE_OID, uuid5

from amqp.exceptions import AccessRefused, MessageNacked
from kombu import Connection, Producer
from kombu.exceptions import ChannelError, OperationalError
from kombu.transport import virtual

from .. import clock
from ..clock import celery_time
from ..leaves import leaf
from ..libraries import Feature, works
from ..message.broker import SENTINEL, credentials_of
from ..message.headers import ATTEMPT_HEADER, HAND_OVER_HEADER, HOLD_HEADER, REDELIVERED_HEADER
from ..message.outgoing import Relayed, Route
from ..servers.connection import is_denied, is_replica, refusal_of
from ..store.delivery import LeasedEntry

SENT, REFUSED, DENIED, DEAD = "sent", "refused", "denied", "dead"
UNKNOWN, UNSENT = "unknown", "unsent"

# kombu 5.5 gave the wait for a confirm a time-out of its own.
LONGEST_TTL = (2**32 - 1) / 1000  # seconds that RabbitMQ can count a message's expiration
_CONFIRM_TIMEOUT = "confirm_timeout" in inspect.signature(Producer.publish).parameters


class Verdict(NamedTuple):
    """The result of publishing one entry, and the reason.

    ``uncertain``: one of several queues refused it, and another may have it.
    """

    word: str
    reason: str = ""
    uncertain: bool = False


class OneByOne:
    """Publishes on any transport, one message at a time; the first failure ends the window.

    Args:
        connection: An open connection.
        timeout: Seconds that the broker may take.
    """

    def __init__(self, connection: Any, timeout: float) -> None:
        self.lost = ""  # the reason, if the broker itself failed, and not a message
        self._connection = connection
        self._timeout = timeout
        # kombu's own transports add KeyError, which an exchange raises that they cannot declare.
        lost = {OperationalError, OSError, *connection.recoverable_connection_errors} - {KeyError}
        self._broken = tuple(lost)
        self._channel_errors = connection.channel_errors
        self._declared: set[str] = set()
        self._open()

    def _open(self) -> None:
        self._producer = Producer(self._connection.channel())

    def probe(self) -> None:
        """Raise if the broker takes no messages, as far as the transport can find out."""

    def publish(
        self, window: Sequence[LeasedEntry], out_of_time: Callable[[], bool]
    ) -> list[Verdict]:
        """Publish in order; return a verdict for each.

        Check *out_of_time* before each message: a scanner may be suspended for minutes between two
        of them, and another one may have taken over the rest meanwhile.
        """
        verdicts: list[Verdict] = []
        for entry in window:
            over = verdicts and verdicts[-1].word not in (SENT, DEAD)
            verdicts.append(Verdict(UNSENT) if over or out_of_time() else self._attempt(entry))
        return verdicts

    def _attempt(self, entry: LeasedEntry) -> Verdict:
        try:
            relayed = Relayed.parse(entry.destination, entry.message)
            relayed.options["headers"].update(_own_headers(entry))
        except Exception as error:
            return Verdict(DEAD, f"record cannot be read: {error!r}")
        try:
            self._declare(relayed.route)
        except Exception as error:
            return self._verdict_of(error)
        try:
            self._send(entry, relayed)
        except Exception as error:
            return self._verdict_of(error, partly=self._goes_in_parts(relayed.route))
        return Verdict(SENT)

    def _verdict_of(self, error: Exception, *, partly: bool = False) -> Verdict:
        """Return the verdict for an error; *partly*: a queue may have the message nevertheless."""
        reason = f"{type(error).__name__}: {error}"
        # py-amqp calls a nack recoverable, as other transports do errors of the channel; they are
        # about this message. So is an error that is irrecoverable or not the connection's: the
        # message cannot be encoded, or has no queue.
        own = isinstance(error, (MessageNacked, ChannelError, *self._channel_errors))
        # redis-py closes the connection to a group's master that has become a replica.
        if refusal_of(error) or is_replica(error.__context__):
            self.lost = reason
            # The broker says that it did nothing of the last command; earlier ones may have run.
            return Verdict(UNKNOWN if partly else UNSENT, reason)
        # If some of several queues may have it, each attempt repeats it there, so attempts count.
        if not partly and self._is_denied(error):
            return Verdict(DENIED, reason)
        if own or not isinstance(error, self._broken):
            return Verdict(REFUSED, reason, partly)
        self.lost = reason
        return Verdict(UNKNOWN, reason)

    def _is_denied(self, error: Exception) -> bool:
        """Whether this user lacks a right, which somebody may grant again."""
        return isinstance(error, AccessRefused) or is_denied(error)

    def _send(self, entry: LeasedEntry, relayed: Relayed) -> None:
        options = dict(relayed.options)
        ttl_ms = options.pop("expiration", None)
        expires = options["headers"].get("expires")
        until = entry.seconds_until(celery_time(expires)) if expires else None
        ttl = ttl_ms and int(ttl_ms) / 1000 if until is None else until
        # RabbitMQ refuses a longer one. A worker drops what has expired in any case.
        if ttl is not None and ttl <= LONGEST_TTL:
            options["expiration"] = max(0.0, ttl)
        if _CONFIRM_TIMEOUT:
            options["confirm_timeout"] = self._timeout
        self._producer.publish(
            relayed.body,
            exchange=relayed.route.exchange,
            routing_key=relayed.route.routing_key,
            mandatory=relayed.route.mandatory,
            timeout=self._timeout,
            retry=False,
            **options,
        )

    def _declare(self, route: Route) -> None:
        if route.text not in self._declared:
            for entity in route.declare:
                self._producer.maybe_declare(entity)
            self._declared.add(route.text)
        # On Redis, a message to an exchange without queues vanishes silently, so do here what
        # `mandatory` does on AMQP.
        if route.exchange and route.mandatory and not self._leads_somewhere(route):
            raise ChannelError(f"no queue is bound to exchange {route.exchange!r}")

    def _leads_somewhere(self, route: Route) -> bool:
        channel = self._producer.channel
        if not isinstance(channel, virtual.Channel) or not works(Feature.UNROUTABLE):
            return True
        return bool(channel._lookup(route.exchange, route.routing_key))

    def _goes_in_parts(self, route: Route) -> bool:
        """Whether a failed publish may have reached some of several queues.

        kombu's own exchanges put a message into one queue after the other.
        """
        channel = self._producer.channel
        if not route.exchange or not isinstance(channel, virtual.Channel):
            return False
        try:
            return len(channel._lookup(route.exchange, route.routing_key)) > 1
        except Exception:
            return True


class Pushing(OneByOne):
    """Publishes on Redis: pushes messages for a list as they are, all for one list at once."""

    def publish(
        self, window: Sequence[LeasedEntry], out_of_time: Callable[[], bool]
    ) -> list[Verdict]:
        verdicts = [Verdict(UNSENT)] * len(window)
        lists: dict[str, dict[int, bytes]] = defaultdict(dict)
        for place, entry in enumerate(window):
            key, message = self._pushed(entry)
            if key:
                lists[key][place] = message
            elif not self.lost and not out_of_time():
                verdicts[place] = self._attempt(entry)
        for key, messages in lists.items():
            if self.lost or out_of_time():
                break
            verdict = self._push(key, messages.values())
            for place in messages:
                verdicts[place] = verdict
        return verdicts

    def _pushed(self, entry: LeasedEntry) -> tuple[str | None, bytes]:
        try:
            return Route.parse(entry.destination).list, _with_attempt(entry)
        except Exception:
            return None, b""

    def _push(self, key: str, messages: Iterable[bytes]) -> Verdict:
        try:
            with self._producer.channel.conn_or_acquire() as client:
                client.lpush(key, *messages)
        except Exception as error:
            return self._verdict_of(error)
        return Verdict(SENT)


def _with_attempt(entry: LeasedEntry) -> bytes:
    message = entry.message if entry.is_first else _with_own_tag(entry.message, entry.attempts + 1)
    # A message ends with its headers and two closing braces.
    return b"%s, %s}" % (message[:-2], json.dumps(_own_headers(entry))[1:].encode())


def _own_headers(entry: LeasedEntry) -> dict[str, Any]:
    headers = {ATTEMPT_HEADER: entry.attempts + 1, HAND_OVER_HEADER: entry.hand_over}
    if entry.hold:
        headers[HOLD_HEADER] = entry.hold
    return {**headers, REDELIVERED_HEADER: True} if entry.uncertain else headers


def _with_own_tag(message: bytes, attempt: int) -> bytes:
    # kombu stores unacknowledged messages by their delivery tag. If two copies had the same tag,
    # acknowledging one would drop the other.
    tag = json.loads(message)["properties"]["delivery_tag"]
    old, new = (
        b'"delivery_tag": ' + json.dumps(text).encode() for text in (tag, f"{tag}-{attempt}")
    )
    return message.replace(old, new, 1)


# Parts of the codes that say so; their HTTP status differs with the protocol.
_DENIED = re.compile(
    "AccessDenied|NotAuthorized|OptInRequired|InvalidSecurity|UnrecognizedClient|Credential|Signature|Token|AccessKey"
)
_SERVICE_FAILED = 500  # HTTP's lowest status of a server that failed


class Queueing(OneByOne):
    """Publishes to Amazon SQS, whose answer to a message says that it has it.

        answer                                       verdict
        an error about the message or its queue      refused
        a missing right, or wrong credentials        denied
        too many requests; or no connection          unsent, and the broker is lost
        an error of the service; or none in time     unknown, and the broker is lost

    kombu counts all errors without an answer among those of a channel, which are about one message.
    """

    def _verdict_of(self, error: Exception, *, partly: bool = False) -> Verdict:
        word = _word_of(error, partly)
        if not word:
            return super()._verdict_of(error, partly=partly)
        self.lost = f"{type(error).__name__}: {error}"
        return Verdict(word, self.lost)

    def _is_denied(self, error: Exception) -> bool:
        from botocore.exceptions import ClientError

        return isinstance(error, ClientError) and bool(
            _DENIED.search(error.response["Error"]["Code"])
        )

    def _send(self, entry: LeasedEntry, relayed: Relayed) -> None:
        # A FIFO queue takes one of all messages that have the same name within five minutes. kombu
        # would name each attempt anew.
        name = str(uuid5(NAMESPACE_OID, f"{entry.task_id} {entry.hand_over}"))
        relayed.options.setdefault("MessageDeduplicationId", name)
        super()._send(entry, relayed)


def _word_of(error: Exception, partly: bool) -> str:
    """Return the verdict if an error is about the service; else an empty text."""
    from botocore import exceptions as boto  # Celery's transport installs it

    if isinstance(error, boto.ClientError):
        if "Throttl" in error.response["Error"]["Code"]:
            return UNSENT
        failed = error.response["ResponseMetadata"]["HTTPStatusCode"] >= _SERVICE_FAILED
        return UNKNOWN if failed else ""
    if isinstance(error, boto.ParamValidationError) or not isinstance(error, boto.BotoCoreError):
        return ""
    unreached = isinstance(error, (boto.ConnectTimeoutError, boto.EndpointConnectionError))
    return UNSENT if unreached and not partly else UNKNOWN


class Confirming(OneByOne):
    """Publishes to AMQP: a window of messages, then one wait for all of their confirms.

    Confirms are matched by delivery tag, so a late one confirms no other message. (py-amqp's own
    publish-and-wait takes the next confirm for its own, whichever it is.)

    Measured on RabbitMQ 3.10: waiting for each confirm before the next message reaches 1,400
    messages a second; a window of messages with one wait reaches three to five times that.
    """

    def _open(self) -> None:
        channel = self._connection.channel()
        channel.confirm_select()
        channel.events["basic_ack"].add(self._on_ack)
        channel.events["basic_nack"].add(self._on_nack)
        channel.events["basic_return"].add(self._on_return)
        self._producer = Producer(channel)
        self._sent = 0
        self._waiting: dict[int, int] = {}  # delivery tag -> place in the window
        self._window: Sequence[LeasedEntry] = ()
        self._verdicts: list[Verdict] = []
        self._places: dict[str, int] = {}  # task id -> place in the window

    def probe(self) -> None:
        # A broker with a memory alarm accepts connections but no messages, except for the first one
        # of a new connection, so publish two. They reach no queue: the broker confirms and drops
        # them.
        until = clock.monotonic() + self._timeout
        self._window = ()
        for _ in range(2):
            self._verdicts = [Verdict(UNKNOWN)]
            self._producer.publish(b"", routing_key=f"delayq.probe.{os.urandom(8).hex()}")
            self._sent += 1
            self._waiting[self._sent] = 0
            self._await_confirms(until)
            if self._verdicts[0].word in (REFUSED, DENIED):
                # The broker is alive: it closed the channel, as this user may not publish there.
                return self._open()
            if self._verdicts[0].word != SENT:
                raise OperationalError(f"it confirms nothing: {self._verdicts[0].reason}")
        return None

    def publish(
        self, window: Sequence[LeasedEntry], out_of_time: Callable[[], bool]
    ) -> list[Verdict]:
        until = clock.monotonic() + self._timeout
        unconfirmed = Verdict(UNKNOWN, "no confirm came")
        refused = self._declare_all(window)
        self._window = window
        self._verdicts = [Verdict(UNSENT)] * len(window)
        self._places = {entry.task_id: place for place, entry in enumerate(window)}
        for place, entry in enumerate(window):
            if self.lost or clock.monotonic() > until or out_of_time():
                break
            attempt = (refused and refused.get(entry.destination)) or self._attempt(entry)
            self._verdicts[place] = attempt
            if attempt.word == SENT:
                self._sent += 1
                self._waiting[self._sent] = place
                self._verdicts[place] = unconfirmed
            elif not self._producer.channel.is_open:
                break
        self._await_confirms(until)
        return self._verdicts

    def _declare_all(self, window: Sequence[LeasedEntry]) -> dict[str, Verdict]:
        """Declare what the window's messages need; return a verdict for each route that fails.

        Before any message is sent: RabbitMQ closes the channel over a wrong declaration, and the
        confirms under way are lost with it.
        """
        refused: dict[str, Verdict] = {}
        for text in {entry.destination for entry in window} - self._declared:
            try:
                self._declare(Route.parse(text))
            except (*self._channel_errors, *self._broken) as error:
                refused[text] = self._verdict_of(error)
                if self.lost:
                    break
                self._open()
            except Exception as error:
                refused[text] = Verdict(DEAD, f"record cannot be read: {error!r}")
        return refused

    def _declare(self, route: Route) -> None:
        if route.exchange not in route.declared_exchanges and route.text not in self._declared:
            # A publish to a missing exchange closes the channel as well.
            channel = self._producer.channel
            channel.exchange_declare(route.exchange, "direct", passive=True)
        super()._declare(route)

    def _await_confirms(self, until: float) -> None:
        try:
            while self._waiting and self._producer.channel.is_open:
                left = until - clock.monotonic()
                # py-amqp's connection: kombu's would silently open a new one and wait there.
                self._producer.channel.connection.drain_events(timeout=max(0.001, left))
        except Exception as error:
            verdict = self._verdict_of(error)
            # The broker closed the channel over one of the messages under way. If there is only
            # one, it is that one.
            if verdict.word in (REFUSED, DENIED) and len(self._waiting) > 1:
                verdict = Verdict(UNKNOWN, verdict.reason)
            for place in self._waiting.values():
                self._verdicts[place] = verdict

    def _on_ack(self, tag: int, multiple: bool) -> None:
        self._confirm(tag, multiple, Verdict(SENT))

    def _on_nack(self, tag: int, multiple: bool) -> None:
        self._confirm(
            tag, multiple, Verdict(REFUSED, "the broker rejected it (nack), as a full queue may")
        )

    def _is_partial(self, place: int) -> bool:
        """Whether a nack may come from one queue of several: an exchange is named."""
        if place >= len(self._window):
            return False
        return bool(Route.parse(self._window[place].destination).exchange)

    def _confirm(self, tag: int, multiple: bool, verdict: Verdict) -> None:
        tags = [earlier for earlier in self._waiting if earlier <= tag] if multiple else [tag]
        for confirmed in tags:
            place = self._waiting.pop(confirmed, None)
            # The broker confirms a returned message as well: it stays refused.
            if place is not None and self._verdicts[place].word != REFUSED:
                partly = verdict.word == REFUSED and self._is_partial(place)
                self._verdicts[place] = verdict._replace(uncertain=partly)

    def _on_return(self, error: Any, _exchange: str, _routing_key: str, message: Any) -> None:
        place = self._places.get(message.properties.get("correlation_id"))
        if place is not None:
            self._verdicts[place] = Verdict(REFUSED, f"{type(error).__name__}: {error}")


def publisher_for(connection: Any, timeout: float) -> OneByOne:
    """Return the best publisher that *connection*'s transport allows."""
    transport = connection.transport.driver_type
    if transport == "sqs":
        return Queueing(connection, timeout)
    kind = {"amqp": Confirming, "redis": Pushing}.get(transport, OneByOne)
    if kind is Pushing and not works(Feature.PUSHING):
        kind = OneByOne
    return kind(connection, timeout)


CONNECT_TIMEOUT = 5.0  # seconds for connecting, all steps included
REACH = 2.0  # most seconds that the broker may take for each step of connecting
IDLE = 10.0  # seconds without use after which a connection may be dead


def bounded(connection: Connection, timeout: float, connect_timeout: float) -> Connection:
    """Return a copy of *connection*, not open yet, with limits in seconds for all its waits."""
    reach = min(REACH, connect_timeout)
    copy = connection.clone(connect_timeout=reach, heartbeat=0)
    sockets = {"read_timeout": timeout, "write_timeout": timeout}
    redis = {"socket_timeout": timeout, "socket_connect_timeout": reach}
    transport = copy.transport_options or {}
    # botocore itself would try again for minutes, and an error could be about any of its attempts.
    boto = {"connect_timeout": reach, "read_timeout": timeout, "retries": {"total_max_attempts": 1}}
    options: dict[str, dict[str, Any]] = {
        # A publisher that wants confirms waits for them itself, many at a time.
        "amqp": {"confirm_publish": False, **sockets},
        "redis": {**redis, "retry_on_timeout": False},
        "sqs": {"client-config": {**(transport.get("client-config") or {}), **boto}},
    }
    own = options.get(copy.transport.driver_type, {})
    if _is_group(copy):
        own = {**own, **leaf("sentinel").asked_once(transport)}
    copy.transport_options = {**transport, **own}
    provider = getattr(copy, "credential_provider", None)  # kombu has it from 5.7 on
    if provider is not None:
        copy.credential_provider = credentials_of(provider, "broker_url")
    return copy


def _is_group(connection: Connection) -> bool:
    return bool(connection.transport_cls == SENTINEL)


def connect(connection: Connection, timeout: float) -> None:
    """Open it: try each host once, without a sleep in between, as the caller has a back-off.

    redis-py asks all sentinels in one attempt. If kombu moved on to the next sentinel's URL, it
    would lose the login in the first one.
    """
    hosts = 1 if _is_group(connection) else len(connection.alt or ()) or 1
    connection.ensure_connection(max_retries=hosts - 1, timeout=timeout)
