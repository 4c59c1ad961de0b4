"""A Redis that is found through Redis Sentinel: the current master of a group.

    the remembered address --connect-----------> it says that it is a master: used
        |  none, or it failed                       | it is down, or a replica
        v                                           v
    each sentinel in turn: which is the master? <---+  the next one; and again, while there is time

The process remembers the address until a connection to it fails, a call meets a replica, or
``failover_listener.py`` hears of a new master. Idle connections to another address are closed.
``query.py`` asks the sentinels; ``known_master.py`` decides which of two answers counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from .. import clock
from ..servers.endpoint import Address, Endpoint, Server, shown
from ..servers.refusals import Refusal, refusal_of
from .failover_listener import FAILED, WRONG, FailoverListener
from .known_master import MasterCache
from .query import MasterQuery

ASK = 0.5  # seconds that a sentinel may take for each step, by default
TRY = 1.0  # least seconds that a master has for each step before sentinels are queried again
AGAIN = 0.2  # seconds between such queries, while there is no master
# For queries by redis-py: by default it asks a sentinel that is down ten times, with seconds in
# between, and waits forever for a silent one.
ASKED_ONCE = {"retry": Retry(NoBackoff(), 0), "socket_timeout": ASK}

GLANCE = 0.1  # seconds between two checks, while waiting, whether the process knows a new master
PATIENCE = 1.0  # seconds without an answer before the sentinels are queried for a new master


@dataclass(frozen=True)
class SentinelGroup:
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
    _found: MasterCache = field(default_factory=MasterCache, init=False, compare=False, repr=False)

    may_move = True

    @property
    def url(self) -> str:
        """The sentinels, the database and the master's name, without logins."""
        hosts = ";".join(one.where for one in self.sentinels)
        return f"sentinel://{hosts}/{self.server.db} ({self.name})"

    @property
    def user(self) -> str:
        """The master's user name; empty if a credential provider has it."""
        return self.server.user

    @property
    def kind(self) -> str:
        """The broker's name, which must be the same in all processes that share a store."""
        return f"redis, master {self.name}, database {self.server.db}"

    @property
    def place(self) -> tuple[object, ...]:
        """Equal for two that name the same master of the same sentinels, as far as names tell."""
        sentinels = frozenset(one.address for one in self.sentinels)
        return (self.name, sentinels, self.server.tls is None, self.server.db)

    def same_database(self, other: Server) -> bool:
        """Whether both name the same database of the same group, as far as names tell."""
        return self.place == other.place

    def connection(self, timeout: float) -> Any:
        """Return an open connection to the master, which has confirmed that it is one.

        While the master that the sentinels name is down or a replica, ask them again and again: a
        failover may be under way.

        Args:
            timeout: Seconds that all of this takes at most.

        Raises:
            redis.exceptions.ConnectionError: no sentinel names a master, the master refuses
                connections, or the time is over.
        """
        until = clock.monotonic() + timeout
        each = max(TRY, timeout / 3)
        tried: dict[Address, str] = {}
        while True:
            connection = self._remembered(until, each, tried)
            if connection is None:
                connection = self._asked_for(until, each, tried)
            if connection is not None:
                return connection
            if clock.monotonic() + AGAIN >= until:
                raise redis.ConnectionError(self._unusable(tried))
            clock.sleep(AGAIN)
            tried = {}

    def find_master(self, until: float) -> None:
        """Read what a sentinel has published meanwhile; start listening if none is listened to.

        After ``SENTINEL FAILOVER``, the old master may answer for ten more seconds, and its writes
        in that time are lost.

        Args:
            until: When the caller's time is over, by the monotonic clock.
        """
        found = self._found
        if found.is_doubted:
            found.is_doubted = False
            self._ask_anew(until)
        try:
            herald = found.ears.pop()
        except IndexError:
            # Another thread has the listener; or, if its time is over, was interrupted and lost it.
            if clock.monotonic() < found.busy_until:
                return
            herald = self.herald()
        found.busy_until = until
        try:
            herald.hear()
            herald.listen(clock.seconds_left(until) / 4)
        finally:
            found.ears.append(herald)

    def close(self) -> None:
        """Stop listening, until the next :meth:`find_master`."""
        try:
            herald = self._found.ears.pop()
        except IndexError:
            return  # there is none, or another thread is using it
        try:
            herald.close()
        finally:
            self._found.busy_until = 0.0

    def forget(self) -> None:
        """In a forked child: drop the parent's listener without touching its socket."""
        self._found.ears.clear()
        self._found.busy_until = 0.0

    def is_current(self, connection: Any) -> bool:
        """Whether a connection leads to the master; false while this process knows none."""
        return _address_of(connection) == self._found.address

    def is_replaced(self, connection: Any) -> bool:
        """Whether another server is the master; false while this process knows none."""
        return self._found.address not in (None, _address_of(connection))

    def wait(self, connection: Any, until: float) -> None:
        """Wait for an answer, and check meanwhile whether there is a new master.

        So a link that is cut silently costs no more time than the election of a new master.

        Args:
            until: When to return without an answer, by the monotonic clock; the read fails then.

        Raises:
            redis.exceptions.ConnectionError: there is a new master, or the connection is closed.
        """
        ask_at = clock.monotonic() + PATIENCE
        while not connection.can_read(min(GLANCE, clock.seconds_left(until))):
            now = clock.monotonic()
            if now >= until:
                return
            if self.is_replaced(connection) or (
                now >= ask_at and self._named_first(until) not in (None, _address_of(connection))
            ):
                raise redis.ConnectionError("no answer came, and another is the master by now")
            if now >= ask_at:
                ask_at = clock.monotonic() + PATIENCE

    @property
    def _council(self) -> MasterQuery:
        return MasterQuery(self.name, self.sentinels, self.ask, self.others)

    def _named(self, until: float, errors: list[str]) -> Iterator[tuple[int, Address]]:
        found = self._found
        return self._council.named(found.first, until, errors, found.left)

    def _named_first(self, until: float) -> Address | None:
        """Return the master that the first sentinel to answer, and to be up to date, names."""
        for number, address in self._named(until, []):
            if address == self._found.address:
                self._found.first = number
            return address
        return None

    def doubt(self) -> None:
        """Ask the sentinels before the next call; connections stay if the master is the same."""
        self._found.is_doubted = True

    def _ask_anew(self, until: float) -> None:
        at = clock.monotonic()
        address = self._named_first(until)
        if address is not None and self._found.address is not None:
            self._found.learn(address, at)

    def lost(self, connection: Any) -> None:
        """Ask the sentinels when a connection is needed next."""
        self._found.forget(_address_of(connection))

    def herald(self) -> FailoverListener:
        """Make a listener that hears at once of a new master."""
        check = self._council.check
        return FailoverListener(self.name, self.sentinels, self.ask, check, self.moved)

    def moved(self, address: Address, left: Address | None = None) -> None:
        """Note that a sentinel has announced a new master, and the previous one."""
        self._found.moved(address, left or self._found.address)

    def _remembered(self, until: float, each: float, tried: dict[Address, str]) -> Any | None:
        """Return a connection to the known master, or to a new one that becomes known meanwhile."""
        while True:
            known = self._found.word
            if known.address is None or known.address in tried:
                return None
            connection = self._tried(known.address, known.at, until, each, tried)
            if connection is not None:
                return connection

    def _asked_for(self, until: float, each: float, tried: dict[Address, str]) -> Any | None:
        """Return a connection to a master that a sentinel names; ``None`` if none is usable."""
        errors: list[str] = []
        is_named = False
        at = clock.monotonic()
        for number, address in self._named(until, errors):
            is_named = True
            if address in tried:
                continue
            connection = self._tried(address, at, until, each, tried)
            if connection is not None:
                self._found.first = number
                return connection
        if not is_named:
            raise redis.ConnectionError(self._council.unknown(errors))
        return None

    def _tried(
        self, address: Address, at: float, until: float, each: float, tried: dict[Address, str]
    ) -> Any | None:
        """Return a connection to a master named at that time; else ``None``, reason in *tried*."""
        left = clock.seconds_left(until)
        place = replace(self.server, host=address[0], port=address[1])
        connection = place.connection(min(each, left))
        is_master = False
        try:
            connection.connect()
            why = _why_no_master(connection)
            # After ``SENTINEL FAILOVER``, the old master claims for seconds that it still is one.
            if not why and not self._found.learn(address, at):
                why = "another became the master meanwhile"
            if not why:
                connection._sock.settimeout(left)
                is_master = True
        except (*FAILED, *WRONG) as error:
            if refusal_of(error) is Refusal.RIGHTS:
                raise  # it is up, and asking again would not help
            why = str(error) or type(error).__name__
        finally:
            if not is_master:
                connection.disconnect()
                self._found.forget(address)
        if is_master:
            return connection
        tried[address] = why
        return None

    def _unusable(self, tried: dict[Address, str]) -> str:
        each = "; ".join(f"{shown(*address)}: {why}" for address, why in tried.items())
        return f"the master {self.name!r} that its sentinels name cannot be used: {each}"


def _address_of(connection: Any) -> Address:
    return connection.host, connection.port


def _why_no_master(connection: Any) -> str:
    """Return why a named server is not the master; empty if it is."""
    try:
        connection.send_command("HELLO", 2)
        told = connection.read_response()
    except redis.ResponseError:
        return ""  # a proxy or an imitation without this command
    facts = dict(zip(told[::2], told[1::2], strict=False))
    role = facts.get(b"role", b"master")
    return "" if role == b"master" else f"it is a {role.decode()}"
