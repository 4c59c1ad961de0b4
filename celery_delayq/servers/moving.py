"""A master that is found, and may move to another address: what Sentinel and Cluster share.

    the address that is remembered --connect--> it is the master: used
        |  none, or it failed                       | it is away, or not the master
        v                                           v
    ask in turn: who is the master?  <--------------+  the next one; and again, while there is time

The address is remembered until a connection to it fails, a refusal says that the master is another
one, or the process hears so. The whole process knows it, and connections that lead elsewhere are
closed when they are idle. Whom to ask, and what a refusal says, each leaf knows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import redis

from .. import clock
from .endpoint import Address, Endpoint, Listener, Server
from .known_master import MasterCache
from .refusals import Refusal, is_replica, lacks_replicas, refusal_of

FAILED = (redis.RedisError, OSError)
# What an answer of the wrong kind, or an address that cannot be one, ends in. Not any Exception:
# the handler of a signal may have raised that, as Celery's soft time limit does.
WRONG = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)

ASK = 0.5  # seconds that one who is asked may take for each step, where nothing else is said
TRY = 1.0  # seconds that a master may take for each step, at least, before another one is asked
AGAIN = 0.2  # seconds after which all are asked again, while there is no master
GLANCE = 0.1  # seconds after which who waits looks whether the process knows of another master
PATIENCE = 1.0  # seconds without an answer after which it is asked whether there is one


class MovingMaster(ABC):
    """A :class:`Server` whose address others name.

    Attributes:
        server: How the master lets one in: database, login, TLS. Its address is found.
    """

    server: Endpoint
    _found: MasterCache

    may_move = True

    # What a leaf knows.

    @property
    @abstractmethod
    def place(self) -> tuple[object, ...]:
        """Of two that name the same master and database, as far as names tell, equal."""

    @abstractmethod
    def _named(self, until: float, errors: list[str]) -> Iterator[Address]:
        """Ask in turn, while one iterates; *errors* gets what others said instead."""

    @abstractmethod
    def _unknown(self, errors: list[str]) -> str:
        """Why nobody was named, where these are the errors."""

    @abstractmethod
    def _unusable(self, tried: dict[Address, str]) -> str:
        """Why none of those can be used that were named."""

    def _why_no_master(self, connection: Any) -> str:  # noqa: ARG002
        """Why a server that was named is not the master; empty where it is, or will say so."""
        return ""

    # What is known of the server.

    @property
    def user(self) -> str:
        """The name that the master knows one by; empty where a provider of credentials says it."""
        return self.server.user

    def same_database(self, other: Server) -> bool:
        """Whether both name the same database of the same master, as far as names tell."""
        return self.place == other.place

    def is_current(self, connection: Any) -> bool:
        """Whether it leads to who is the master; not, while this process does not know."""
        return address_of(connection) == self._found.address

    def is_replaced(self, connection: Any) -> bool:
        """Whether another is the master; not, while this process does not know."""
        return self._found.address not in (None, address_of(connection))

    def doubt(self) -> None:
        """Ask before the next call; connections stay if it is still the master."""
        self._found.is_doubted = True

    def lost(self, connection: Any) -> None:
        """Ask when a connection is needed next."""
        self._found.forget(address_of(connection))

    def moved(self, address: Address, left: Address | None = None) -> None:
        """Somebody says that another is the master now, and who was it before."""
        self._found.moved(address, left or self._found.address)

    def refused(self, connection: Any, error: redis.ResponseError) -> None:
        """Take note of what a refusal says about who is the master."""
        if lacks_replicas(error):
            self.doubt()
        if is_replica(error):
            self.lost(connection)

    def again_after(self, error: BaseException | None, turn: int) -> float | None:
        """Seconds after which a refused command may be sent again; ``None``: never."""
        return 0.0 if turn == 0 and is_replica(error) else None

    def find_master(self, until: float) -> None:
        """Ask who is the master, where there is a doubt."""
        if not self._found.is_doubted:
            return
        self._found.is_doubted = False
        at = clock.monotonic()
        address = self._named_first(until)
        if address is not None and self._found.address is not None:
            self._found.learn(address, at)

    def herald(self) -> Listener | None:
        """Nobody says by itself that the master has moved."""
        return None

    # How it is found.

    def connection(self, timeout: float) -> Any:
        """A connection to the master, connected.

        Others are asked, again and again, for as long as the one that they name is away or not the
        master: one that takes over may be under way.

        Args:
            timeout: Seconds that all of this takes at most.

        Raises:
            redis.exceptions.ConnectionError: nobody names a master, or that one lets nobody in; or
                the time is over.
            redis.exceptions.ResponseError: it is there, and refuses for good.
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

    def wait(self, connection: Any, until: float) -> None:
        """Wait for an answer; while there is none, look whether another has become the master.

        So a link that is cut silently costs no more time than the election of another.

        Args:
            until: When to give up, by the monotonic clock; then whoever reads notices.

        Raises:
            redis.exceptions.ConnectionError: another is the master, or the connection is closed.
        """
        ask_at = clock.monotonic() + PATIENCE
        while not connection.can_read(min(GLANCE, clock.seconds_left(until))):
            now = clock.monotonic()
            if now >= until:
                return
            if self.is_replaced(connection) or (
                now >= ask_at and self._named_first(until) not in (None, address_of(connection))
            ):
                raise redis.ConnectionError("no answer came, and another is the master by now")
            if now >= ask_at:
                ask_at = clock.monotonic() + PATIENCE

    def _named_first(self, until: float) -> Address | None:
        """Whom the first one names that answers and does not lag behind."""
        return next(self._named(until, []), None)

    def _remembered(self, until: float, each: float, tried: dict[Address, str]) -> Any | None:
        """A connection to who is known; to another, if that becomes known meanwhile."""
        while True:
            known = self._found.word
            if known.address is None or known.address in tried:
                return None
            connection = self._tried(known.address, known.at, until, each, tried)
            if connection is not None:
                return connection

    def _asked_for(self, until: float, each: float, tried: dict[Address, str]) -> Any | None:
        """A connection to whom somebody names; ``None`` if nobody of those can be used."""
        errors: list[str] = []
        is_named = False
        at = clock.monotonic()
        for address in self._named(until, errors):
            is_named = True
            if address in tried:
                continue
            connection = self._tried(address, at, until, each, tried)
            if connection is not None:
                return connection
        if not is_named:
            raise redis.ConnectionError(self._unknown(errors))
        return None

    def _tried(
        self, address: Address, at: float, until: float, each: float, tried: dict[Address, str]
    ) -> Any | None:
        """A connection to who was named at that time, or ``None``; *tried* gets the reason."""
        left = clock.seconds_left(until)
        place = replace(self.server, host=address[0], port=address[1])
        connection = place.connection(min(each, left))
        is_master = False
        try:
            connection.connect()
            why = self._why_no_master(connection)
            # Who hands over by ``SENTINEL FAILOVER`` says for seconds that it is still the master.
            if not why and not self._found.learn(address, at):
                why = "another became the master meanwhile"
            if not why:
                connection._sock.settimeout(left)
                is_master = True
        except (*FAILED, *WRONG) as error:
            if is_final(error):
                raise  # it is there, and asking again would not help
            why = str(error) or type(error).__name__
        finally:
            if not is_master:
                connection.disconnect()
                self._found.forget(address)
        if is_master:
            return connection
        tried[address] = why
        return None


def address_of(connection: Any) -> Address:
    """Where a connection leads."""
    return connection.host, connection.port


def is_final(error: BaseException) -> bool:
    """Whether a server says that it will never let this user in, or into this database."""
    refusal = refusal_of(error)
    is_refused = isinstance(error, redis.ResponseError) and refusal is not Refusal.AWAY
    return is_refused or refusal is Refusal.RIGHTS
