"""A master that is looked up, and may move to another address; shared by Sentinel and Cluster.

    the remembered address --connect-----------> it is the master: used
        |  none, or it failed                       | it is down, or not the master
        v                                           v
    ask in turn: which is the master? <-------------+  the next one; and again, while there is time

The process remembers the address until a connection to it fails, a refusal says that the master is
elsewhere, or the process hears of a new master. Idle connections to another address are closed.
Each leaf knows whom to ask and what a refusal says; :class:`MasterCache` decides which of two
answers counts:

    a sentinel or MOVED --moved--> heard --+
                                           +--> the later of the two counts
    asked, tried --------learn---> named --+

Each of the two is written in one step, and only ``moved`` writes ``heard``. So a connect that ends
late does not overwrite a newer announcement. No lock: an interrupted caller could leave it held.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from ssl import SSLCertVerificationError
from typing import Any

import redis

from ..core import clock
from ..core.servers.connection import Refusal, is_replica, lacks_replicas, refusal_of
from ..core.servers.endpoint import Address, Endpoint, Server

# For this many seconds after a new master was announced, the old one counts only if no sentinel
# names another: a sentinel that is cut off still names the old one. The other sentinels make it a
# replica within some ten seconds, and from then on it reports that itself.
LEFT = 30.0


@dataclass(frozen=True)
class KnownMaster:
    """The master, according to a sentinel or a node of a Cluster.

    Args:
        address: Its address; ``None`` if no master is known.
        at: When the sentinel announced it or was queried, by the monotonic clock.
        left: The previous master, if the sentinel announced a failover.
    """

    address: Address | None = None
    at: float = -math.inf
    left: Address | None = None


class MasterCache:
    """The master that a process knows, and the sentinel to ask first."""

    def __init__(self) -> None:
        self._heard = self._named = KnownMaster()
        self.is_doubted = False
        self.first = 0

    @property
    def word(self) -> KnownMaster:
        """The later of the two."""
        heard, named = self._heard, self._named
        return heard if heard.at >= named.at else named

    @property
    def address(self) -> Address | None:
        """The master's address, if known."""
        return self.word.address

    @property
    def left(self) -> Address | None:
        """The address of the master until a moment ago, if its successor was announced."""
        heard = self._heard
        is_over = clock.monotonic() >= heard.at + LEFT
        return None if is_over or heard.left == self.address else heard.left

    def moved(self, address: Address, left: Address | None) -> None:
        """Note an announced new master, and the previous one."""
        self._heard = KnownMaster(address, clock.monotonic(), left)

    def learn(self, address: Address, at: float) -> bool:
        """Note the master named at that time, unless a later one is known; return whether noted."""
        for later in (self._heard, self._named):
            if later.at >= at and later.address not in (None, address):
                return False
        # An announcement at the same moment counts as later.
        before, self._named = self._named, KnownMaster(address, at)
        if before.at > at and before.address is not None:  # another thread learned of it meanwhile
            self._named = before
            return before.address == address
        return True

    def forget(self, address: Address) -> None:
        """Forget the master, if this is its address."""
        now = clock.monotonic()  # before the check, so that a later announcement counts
        if self.address == address:
            self._named = KnownMaster(None, now)


FAILED = (redis.RedisError, OSError)
# Errors from an unexpected answer, or an invalid address. Not every Exception: a signal handler may
# have raised it, as for Celery's soft time limit.
WRONG = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)

ASK = 0.5  # seconds that a sentinel may take for each step, by default
TRY = 1.0  # seconds that a Cluster node has for each step; a master has at least as many
AGAIN = 0.2  # seconds between such queries, while there is no master
GLANCE = 0.1  # seconds between two checks, while waiting, whether the process knows a new master
PATIENCE = 1.0  # seconds without an answer before a query for a new master


class MovingMaster(Server):
    """A server whose address comes from sentinels, or from the nodes of a Cluster.

    A leaf defines the server's names and the abstract methods.

    Attributes:
        server: The master's database, login and TLS.
    """

    server: Endpoint
    _found: MasterCache

    may_move = True

    @abstractmethod
    def _named(self, until: float, errors: list[str]) -> Iterator[Address]:
        """Query each server in turn, and yield the master it names; *errors* gets the failures."""

    @abstractmethod
    def _unknown(self, errors: list[str]) -> str:
        """Return why no master was named."""

    @abstractmethod
    def _unusable(self, tried: dict[Address, str]) -> str:
        """Return why none of the named masters can be used."""

    def _why_no_master(self, connection: Any) -> str:  # noqa: ARG002
        """Return why a named server is not the master; empty if it may be."""
        return ""

    @property
    def user(self) -> str:
        return self.server.user

    @property
    def node(self) -> Address | None:
        return self._found.address

    def is_current(self, connection: Any) -> bool:
        """Whether a connection leads to the master; false while this process knows none."""
        return address_of(connection) == self._found.address

    def is_replaced(self, connection: Any) -> bool:
        """Whether another server is the master; false while this process knows none."""
        return self._found.address not in (None, address_of(connection))

    def doubt(self) -> None:
        """Query for the master before the next call; connections stay if it is the same."""
        self._found.is_doubted = True

    def lost(self, connection: Any) -> None:
        """Query for the master when a connection is needed next."""
        self._found.forget(address_of(connection))

    def moved(self, address: Address, left: Address | None = None) -> None:
        """Note an announced new master, and the previous one."""
        self._found.moved(address, left or self._found.address)

    def refused(self, connection: Any, error: redis.ResponseError) -> None:
        if lacks_replicas(error):
            self.doubt()
        if is_replica(error):
            self.lost(connection)

    def again_after(self, error: BaseException | None, turn: int) -> float | None:
        return 0.0 if turn == 0 and is_replica(error) else None

    def find_master(self, until: float) -> None:
        """Query for the master, if it is in doubt."""
        if not self._found.is_doubted:
            return
        self._found.is_doubted = False
        at = clock.monotonic()
        address = self._named_first(until)
        if address is not None and self._found.address is not None:
            self._found.learn(address, at)

    # Finding the master.

    def connection(self, timeout: float) -> Any:
        """Return an open connection to the master.

        While the named server is down or not the master, query again: a failover may be under way.

        Args:
            timeout: Seconds that all of this takes at most.

        Raises:
            redis.exceptions.ConnectionError: no server names a master, the master refuses
                connections or has a certificate that is not valid, or the time is over.
            redis.exceptions.ResponseError: a server is up, and refuses for good.
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
        """Wait for an answer, and check meanwhile whether there is a new master.

        So a silently cut link costs no more time than the election of a new master.

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
                now >= ask_at and self._named_first(until) not in (None, address_of(connection))
            ):
                raise redis.ConnectionError("no answer came, and another is the master by now")
            if now >= ask_at:
                ask_at = clock.monotonic() + PATIENCE

    def _named_first(self, until: float) -> Address | None:
        """Return the master from the first answer that is up to date."""
        return next(self._named(until, []), None)

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
        """Return a connection to a named master; ``None`` if none is usable."""
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
        """Return a connection to a master named at that time; else ``None``, reason in *tried*."""
        left = clock.seconds_left(until)
        place = replace(self.server, host=address[0], port=address[1])
        connection = place.connection(min(each, left))
        is_master = False
        try:
            connection.connect()
            why = self._why_no_master(connection)
            # After ``SENTINEL FAILOVER``, the old master claims for seconds that it still is one.
            if not why and not self._found.learn(address, at):
                why = "another became the master meanwhile"
            if not why:
                connection._sock.settimeout(left)
                is_master = True
        except (*FAILED, *WRONG) as error:
            if is_final(error):
                raise  # it is up, and a retry would not help
            why = str(error) or type(error).__name__
            if isinstance(error.__context__, SSLCertVerificationError):
                # Neither would it help here, and a last attempt in no time would hide the reason.
                raise redis.ConnectionError(self._unusable({address: why})) from error
        finally:
            if not is_master:
                connection.disconnect()
                self._found.forget(address)
        if is_master:
            return connection
        tried[address] = why
        return None


def address_of(connection: Any) -> Address:
    """Return the address that a connection leads to."""
    return connection.host, connection.port


def is_final(error: BaseException) -> bool:
    """Whether a server refuses this user, or this database, for good."""
    refusal = refusal_of(error)
    is_refused = isinstance(error, redis.ResponseError) and refusal is not Refusal.AWAY
    return is_refused or refusal is Refusal.RIGHTS
