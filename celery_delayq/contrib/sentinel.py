"""Redis Sentinel: finds the broker or the store as the current master of a group.

    SentinelGroup --asks----> MasterQuery ------> the sentinels, one after another
          '-------<--hears--- FailoverListener <--+switch-master-- one of them

``contrib/moving.py`` describes how a process finds a master. Here sentinels name it, each within a
share of the time, and it has to confirm that it is one. The one that was right last is asked first;
one that is down, silent or no sentinel, or that knows too few others, is left out, and the reason
noted. Scanners wait on the listener beside their subscription; callers check it for messages,
without a thread.
"""

from __future__ import annotations

import math
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import redis
from kombu import Connection
from kombu.utils.url import url_to_parts
from redis.backoff import NoBackoff
from redis.retry import Retry

from ..core import clock
from ..core.errors import InvalidSetting
from ..core.message.broker import (
    Names,
    credentials_of,
    database_of,
    is_sentinel,
    login_of,
    number_of,
    provider_of,
    tls_of,
    tls_of_redis,
    urls_of,
)
from ..core.servers.endpoint import TLS, Address, Endpoint, Listener, shown
from ..core.servers.pool import PerProcess
from ..core.text import logger_of, without_secrets
from .moving import ASK, FAILED, WRONG, MasterCache, MovingMaster

__all__ = ["ASKED_ONCE", "SentinelGroup", "asked_once", "group_of"]

logger = logger_of(__name__)

LISTEN_AGAIN = 5.0  # seconds before the next sentinel is tried; also for an answer to a ping
SIGN_AFTER = 30.0  # seconds of silence before a ping
SWITCH_WORDS = 5  # +switch-master: name, the old address, the new one
PORT = 26379
_MASTER = "the name of a master that the sentinels know, such as 'mymaster'"
_NO_BLANK = "URLs parted by ';' alone: of one behind a blank, kombu reads no host"
_SECONDS = "a number of seconds above 0"
_SENTINELS = "a whole number of sentinels, 0 or more"

# For queries by redis-py: by default it asks a sentinel that is down ten times, with seconds in
# between, and waits forever for a silent one.
ASKED_ONCE = {"retry": Retry(NoBackoff(), 0), "socket_timeout": ASK}


class FailoverListener(Listener):
    """Hears from any one sentinel that its group has a new master; used by one thread.

    It only saves time: without it, a caller learns of the move from a closed connection, a replica
    or silence. If a sentinel is gone or silent, the next one takes its place.

    Args:
        name: The master's name.
        sentinels: The sentinels to listen to.
        seconds: How long one of them may take for each step.
        check: Raises an error of redis-py if the sentinel behind a connection cannot be trusted;
            the next one is tried then, as if it were down.
        moved: Called with the new master's address and the previous one's.
    """

    def __init__(
        self,
        name: str,
        sentinels: Sequence[Endpoint],
        seconds: float,
        check: Callable[[Any], None],
        moved: Callable[[Address, Address], None],
    ) -> None:
        self._name = name
        self._sentinels = sentinels
        self._seconds = seconds
        self._check = check
        self._moved = moved
        # So that not all processes listen to the first one.
        self._turn = os.getpid()
        self._again = 0.0
        self._is_asked, self._sign_by = False, 0.0
        self._connection: Any = None

    @property
    def sockets(self) -> list[Any]:
        return [] if self._connection is None else [self._connection._sock]

    def listen(self, seconds: float = math.inf) -> None:
        """Subscribe, unless that is done; failures only go to the debug log.

        Args:
            seconds: How long the sentinel may take for each step, at most.
        """
        now = clock.monotonic()
        if self._connection is not None and now >= self._sign_by:
            self._ask_for_sign(now)
        if self._connection is not None or now < self._again:
            return
        self._again = now + LISTEN_AGAIN
        sentinel = self._sentinels[self._turn % len(self._sentinels)]
        self._turn += 1
        connection = sentinel.connection(min(seconds, self._seconds))
        try:
            connection.connect()
            self._check(connection)
            connection.send_command("SUBSCRIBE", "+switch-master")
            connection.read_response()
        except (*FAILED, *WRONG) as error:
            connection.disconnect()
            logger.debug("sentinel %s cannot be listened to: %s", sentinel.where, error)
            return
        except BaseException:
            connection.disconnect()
            raise
        self._connection = connection
        self._note_sign()

    def hear(self) -> bool:
        is_moved = False
        try:
            while self._connection is not None and self._connection.can_read():
                kind, *rest = self._connection.read_response()
                words = rest[-1].decode(errors="replace").split() if kind == b"message" else []
                if len(words) == SWITCH_WORDS and words[0] == self._name:
                    self._moved((words[3], int(words[4])), (words[1], int(words[2])))
                    is_moved = True
                self._note_sign()
        except (*FAILED, *WRONG) as error:
            logger.debug("lost the sentinel that was listened to: %s", error)
            self.close()
        except BaseException:
            self.close()  # interrupted in the middle of a message
            raise
        return is_moved

    def _ask_for_sign(self, now: float) -> None:
        if self._is_asked:
            self.close()
            return
        self._is_asked, self._sign_by = True, now + LISTEN_AGAIN
        try:
            self._connection.send_command("PING")
        except FAILED:
            self.close()

    def _note_sign(self) -> None:
        self._is_asked, self._sign_by = False, clock.monotonic() + SIGN_AFTER

    def close(self) -> None:
        """Stop listening; the next :meth:`listen` may start again soon."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.disconnect()


@dataclass(frozen=True)
class MasterQuery:
    """The sentinels of a group.

    Args:
        name: The master's name.
        sentinels: Their addresses and logins.
        ask: Seconds that one of them may take for each step.
        others: How many other sentinels a sentinel must know to be trusted.
    """

    name: str
    sentinels: tuple[Endpoint, ...]
    ask: float
    others: int

    def named(
        self, first: int, until: float, errors: list[str], left: Address | None = None
    ) -> Iterator[tuple[int, Address]]:
        """Ask sentinels while you iterate; yield the number of each and the master it names.

        Args:
            first: The number of the sentinel to ask first.
            until: When to give up, by the monotonic clock.
            errors: Gets the errors of the others.
            left: The previous master, yielded last, for the case that no sentinel names another.
        """
        names_left = []
        is_another = False
        for number, address in self._answers(first, until, errors):
            if address == left:
                names_left.append((number, address))
            else:
                is_another = True
                yield number, address
        if not is_another:
            yield from names_left

    def _answers(
        self, first: int, until: float, errors: list[str]
    ) -> Iterator[tuple[int, Address]]:
        numbers = list(range(len(self.sentinels)))
        for turn, number in enumerate(numbers[first:] + numbers[:first]):
            sentinel = self.sentinels[number]
            # Each sentinel gets a share of the time left, and so does the master.
            seconds = min(self.ask, clock.seconds_left(until) / (len(self.sentinels) - turn + 1))
            try:
                address = self._answer_of(sentinel, seconds)
            except FAILED as error:
                errors.append(f"{sentinel.where}: {error}")
            except WRONG as error:
                errors.append(f"{sentinel.where}: not a sentinel's answer ({error!r})")
            else:
                if address is not None:
                    yield number, address

    def check(self, connection: Any) -> None:
        """Check that the sentinel behind a connection can be trusted.

        Raises:
            redis.exceptions.ResponseError: it knows too few others.
        """
        if self.others and self._others_of(connection) < self.others:
            raise redis.ResponseError(f"it knows fewer than {self.others} other sentinels")

    def unknown(self, errors: list[str]) -> str:
        """Return why no master was named, given these errors."""
        hosts = ", ".join(sentinel.where for sentinel in self.sentinels)
        if not errors:
            return f"the sentinels {hosts} know no master {self.name!r}"
        others = len(self.sentinels) - len(errors)
        rest = "; the others know no such master" if others else ""
        return f"no sentinel names the master {self.name!r}: {'; '.join(errors)}{rest}"

    def _answer_of(self, sentinel: Endpoint, seconds: float) -> Address | None:
        connection = sentinel.connection(seconds)
        try:
            connection.connect()
            self.check(connection)
            address = _asked(connection, "GET-MASTER-ADDR-BY-NAME", self.name)
        finally:
            connection.disconnect()
        return None if not address else (address[0].decode(), int(address[1]))

    def _others_of(self, connection: Any) -> int:
        facts = _asked(connection, "MASTER", self.name)
        return int(dict(zip(facts[::2], facts[1::2], strict=False)).get(b"num-other-sentinels", 0))


def _asked(connection: Any, *question: str) -> Any:
    connection.send_command("SENTINEL", *question)
    try:
        return connection.read_response()
    except redis.ResponseError as error:
        if "unknown command" in str(error):
            raise redis.ResponseError("it is a Redis, not a sentinel") from error
        raise


class _Ears:
    """How a process hears of a new master.

    Attributes:
        idle: The listener, unless a thread is using it; empty at first. Two threads may make one
            each.
        busy_until: By then a thread has given it back, or was interrupted.
    """

    def __init__(self) -> None:
        self.idle: deque[FailoverListener] = deque(maxlen=1)
        self.busy_until = 0.0


class _HeardMaster(MasterCache):
    """The master of a group, as a process knows it, and what it hears of a new one by."""

    def __init__(self) -> None:
        super().__init__()
        self.ears = PerProcess(_Ears)


@dataclass(frozen=True)
class SentinelGroup(MovingMaster):
    """A master and its replicas, as their sentinels know them.

    Args:
        name: The master's name.
        sentinels: The addresses and logins of the sentinels.
        server: The master's database, login and TLS. Its address comes from the sentinels.
        ask: Seconds that a sentinel may take for each step.
        others: How many other sentinels a sentinel must know to be trusted.
    """

    name: str
    sentinels: tuple[Endpoint, ...]
    server: Endpoint
    ask: float = ASK
    others: int = 0
    _found: _HeardMaster = field(
        default_factory=_HeardMaster, init=False, compare=False, repr=False
    )

    @property
    def url(self) -> str:
        """The sentinels, the database and the master's name, without logins."""
        hosts = ";".join(sentinel.where for sentinel in self.sentinels)
        return f"sentinel://{hosts}/{self.server.db} ({self.name})"

    @property
    def kind(self) -> str:
        return self.server.kind  # a process may reach the master without the sentinels

    @property
    def place(self) -> tuple[object, ...]:
        sentinels = frozenset(sentinel.address for sentinel in self.sentinels)
        return (self.name, sentinels, self.server.tls is None, self.server.db)

    def find_master(self, until: float) -> None:
        """Read what a sentinel has published meanwhile; start listening if none is listened to.

        After ``SENTINEL FAILOVER``, the old master may answer for ten more seconds, and its writes
        in that time are lost.

        Args:
            until: When the caller's time is over, by the monotonic clock.
        """
        super().find_master(until)
        ears = self._found.ears.get()
        try:
            herald = ears.idle.pop()
        except IndexError:
            # Another thread has the listener; or, if its time is over, was interrupted and lost it.
            if clock.monotonic() < ears.busy_until:
                return
            herald = self.herald()
        ears.busy_until = until
        try:
            herald.hear()
            herald.listen(clock.seconds_left(until) / 4)
        finally:
            ears.idle.append(herald)

    def close(self) -> None:
        """Stop listening, until the next :meth:`find_master`."""
        ears = self._found.ears.get()
        try:
            herald = ears.idle.pop()
        except IndexError:
            return  # there is none, or another thread is using it
        try:
            herald.close()
        finally:
            ears.busy_until = 0.0

    def herald(self) -> FailoverListener:
        """Make a listener that hears at once of a new master."""
        check = self._query.check
        return FailoverListener(self.name, self.sentinels, self.ask, check, self.moved)

    @property
    def _query(self) -> MasterQuery:
        return MasterQuery(self.name, self.sentinels, self.ask, self.others)

    def _named(self, until: float, errors: list[str]) -> Iterator[Address]:
        found = self._found
        for number, address in self._query.named(found.first, until, errors, found.left):
            found.first = number  # the one to ask first next time
            yield address

    def _unknown(self, errors: list[str]) -> str:
        return self._query.unknown(errors)

    def _unusable(self, tried: dict[Address, str]) -> str:
        each = "; ".join(f"{shown(*address)}: {why}" for address, why in tried.items())
        return f"the master {self.name!r} that its sentinels name cannot be used: {each}"

    def _why_no_master(self, connection: Any) -> str:
        return _why_no_master(connection)


def _why_no_master(connection: Any) -> str:
    """Return why a named server is not the master; empty if it is."""
    try:
        connection.send_command("HELLO", 2)
        reply = connection.read_response()
    except redis.ResponseError:
        return ""  # a proxy or an imitation without this command
    facts = dict(zip(reply[::2], reply[1::2], strict=False))
    role = facts.get(b"role", b"master")
    return "" if role == b"master" else f"it is a {role.decode()}"


def group_of(connection: Connection, options: Mapping[str, Any], names: Names) -> SentinelGroup:
    """Return the group of the master that sentinels name.

    As with kombu, the master's database, login and TLS come from the first URL and the options of
    the connection; the other URLs give only host and port. ``sentinel_kwargs`` has the options of
    the sentinels.

    Args:
        connection: kombu's connection, not open.
        options: The transport options.
        names: The names of the settings with all of this.

    Raises:
        InvalidSetting: a part is missing or invalid.
        ValueError: the URL names no database.
    """
    name = names.options
    master = options.get("master_name")
    if not master or not isinstance(master, str):
        raise InvalidSetting(f"{name}['master_name']", master, _MASTER)
    asking = options.get("sentinel_kwargs") or {}
    of_asking = f"{name}['sentinel_kwargs']"
    if not isinstance(asking, Mapping):
        raise InvalidSetting(of_asking, type(asking).__name__, "a mapping")
    provider = asking.get("credential_provider")
    login = login_of(asking.get("username"), asking.get("password"), provider, of_asking)
    about_tls = {word: value for word, value in asking.items() if str(word).startswith(TLS)}
    tls = tls_of(about_tls, of_asking) if asking.get("ssl") else None
    sentinels = [
        Endpoint(host=host or "localhost", port=port or PORT, tls=tls, **login)
        for host, port in _places(connection, names.url)
    ]
    words = ("socket_timeout", "socket_connect_timeout")
    limits = [_seconds_of(asking, word, of_asking) for word in words]
    provider = provider_of(connection, options)
    return SentinelGroup(
        master,
        tuple(sentinels),
        Endpoint(
            db=database_of(connection.virtual_host),
            tls=tls_of_redis(connection, names.tls),
            **login_of(connection.userid, connection.password, provider, name),
        ),
        ask=min((limit for limit in limits if limit), default=ASK),
        others=_others_of(options, name),
    )


def asked_once(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return a broker's transport options with which kombu asks each sentinel once."""
    asking = {**ASKED_ONCE, **(options.get("sentinel_kwargs") or {})}
    provider = asking.get("credential_provider")
    if provider is not None:
        # kombu passes it to redis-py unchanged.
        name = "broker_transport_options['sentinel_kwargs']['credential_provider']"
        asking["credential_provider"] = credentials_of(provider, name)
    return {"sentinel_kwargs": asking}


def _places(connection: Connection, name: str) -> Iterable[tuple[str | None, int | None]]:
    """Yield host and port of each sentinel once; *name* is the setting's."""
    urls = urls_of(connection)
    if any(url[0].isspace() for url in urls):
        raise InvalidSetting(name, without_secrets(";".join(urls)), _NO_BLANK)
    parts = [url_to_parts(url) for url in urls if is_sentinel(url)]
    places = [(part.hostname, part.port) for part in parts] or [
        (connection.hostname, connection.port)
    ]
    return dict.fromkeys(places)


def _seconds_of(options: Mapping[str, Any], word: str, name: str) -> float | None:
    """Return an option in seconds, which may be a string; ``None`` if it is not set.

    Raises:
        InvalidSetting: it is no number above 0.
    """
    value = options.get(word)
    if value is None:
        return None
    number = number_of(value)
    if not 0 < number < math.inf:
        raise InvalidSetting(f"{name}[{word!r}]", value, _SECONDS)
    return number


def _others_of(options: Mapping[str, Any], name: str) -> int:
    """Return how many other sentinels a sentinel must know; the option may be a string.

    Raises:
        InvalidSetting: it is no whole number, or below 0.
    """
    value = options.get("min_other_sentinels")
    number = 0.0 if value is None else number_of(value)
    if not (number >= 0 and number.is_integer()):
        raise InvalidSetting(f"{name}['min_other_sentinels']", value, _SENTINELS)
    return int(number)
