"""Publishes a window of entries; each gets a verdict.

sent      the broker has it (and confirmed it, if the transport can)
refused   the broker rejected it, or it cannot be sent: counts as a refusal; if one of several
          queues rejected it, the others may have it
denied    this user lacks a right: it waits, and nothing counts
dead      the record cannot be read
unknown   the link broke or timed out after sending began: it may have arrived
unsent    it was not attempted
"""

from __future__ import annotations

import inspect
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from amqp.exceptions import AccessRefused, MessageNacked
from kombu import Producer
from kombu.exceptions import ChannelError, OperationalError
from kombu.transport import virtual

from ..clock import celery_time
from ..libraries import Feature, works
from ..message.headers import ATTEMPT_HEADER, HAND_OVER_HEADER, HOLD_HEADER, REDELIVERED_HEADER
from ..message.outgoing import Relayed, Route
from ..servers.connection import is_denied, is_replica, refusal_of
from ..store.values import LeasedEntry

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
