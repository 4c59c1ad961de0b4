"""A Redis that is found through Redis Sentinel: whoever is the master of a group at present.

    the address that is remembered --connect--> it says that it is a master: used
        |  none, or it failed                       | it is away, or a replica
        v                                           v
    each sentinel in turn: who is the master?  <----+  the next one; and again, while there is time

What the address is, is remembered until a connection to it fails, or somebody hears of another: a
call that is refused because it met a replica, or ``herald.py``, which listens to a sentinel. It is
known to the whole process, and connections that lead elsewhere are closed when they are idle. How
sentinels are asked is in ``council.py``; which of two words counts, in ``found.py``.
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

ASK = 0.5  # seconds that a sentinel may take for each step, where nothing else is said
TRY = 1.0  # seconds that a master may take for each step, at least, before sentinels are asked anew
AGAIN = 0.2  # seconds after which they are, while there is none
# For those who let redis-py ask the sentinels: of itself it asks one that is away ten times, with
# seconds in between, and waits for one that is silent for ever.
ASKED_ONCE = {"retry": Retry(NoBackoff(), 0), "socket_timeout": ASK}

GLANCE = 0.1  # seconds after which who waits looks whether the process knows of another master
PATIENCE = 1.0  # seconds without an answer after which a sentinel is asked whether there is one


@dataclass(frozen=True)
class SentinelGroup:
    """A master and its replicas, as their sentinels know them.

    Args:
        name: The master's.
        sentinels: Where they are, and how each lets one in.
        server: How the master lets one in: database, login, TLS. Where it is, sentinels tell.
        ask: Seconds that a sentinel may take for each step.
        others: How many other sentinels one has to know, or else it is not believed.
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
        """Sentinels, database and name, without logins."""
        hosts = ";".join(one.where for one in self.sentinels)
        return f"sentinel://{hosts}/{self.server.db} ({self.name})"

    @property
    def user(self) -> str:
        """The name that the master knows one by; empty where a provider of credentials says it."""
        return self.server.user

    @property
    def kind(self) -> str:
        """What processes that share a store must not differ in, where it is their broker."""
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
        """A connection to the master, connected; it has said that it is one.

        Sentinels are asked, again and again, for as long as the one that they name is away or a
        replica: one that takes over may be under way.

        Args:
            timeout: Seconds that all of this takes at most.

        Raises:
            redis.exceptions.ConnectionError: no sentinel names a master, or that one lets nobody
                in; or the time is over.
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
        """Take note of what a sentinel has said meanwhile; where none is listened to, begin.

        A master that hands over to another by ``SENTINEL FAILOVER`` may go on answering for ten
        seconds, and what it takes in them is lost.

        Args:
            until: When the call ends that it is for, by the monotonic clock.
        """
        found = self._found
        if found.is_doubted:
            found.is_doubted = False
            self._ask_anew(until)
        try:
            herald = found.ears.pop()
        except IndexError:
            # Another thread looks; or, after its time, it was interrupted, and they are lost.
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
        """Listen no more, until the next :meth:`look`."""
        try:
            herald = self._found.ears.pop()
        except IndexError:
            return  # there is none, or a thread looks that goes on to use it
        try:
            herald.close()
        finally:
            self._found.busy_until = 0.0

    def forget(self) -> None:
        """In a forked child: leave what the parent listens to, and do not touch its socket."""
        self._found.ears.clear()
        self._found.busy_until = 0.0

    def is_current(self, connection: Any) -> bool:
        """Whether it leads to who is the master; not, while this process does not know."""
        return _address_of(connection) == self._found.address

    def is_replaced(self, connection: Any) -> bool:
        """Whether another is the master; not, while this process does not know."""
        return self._found.address not in (None, _address_of(connection))

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
        """Whom the first sentinel names that answers and does not lag behind."""
        for number, address in self._named(until, []):
            if address == self._found.address:
                self._found.first = number
            return address
        return None

    def doubt(self) -> None:
        """Ask the sentinels before the next call; connections stay if it is still the master."""
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
        """What hears at once when another becomes the master."""
        check = self._council.check
        return FailoverListener(self.name, self.sentinels, self.ask, check, self.moved)

    def moved(self, address: Address, left: Address | None = None) -> None:
        """A sentinel says that another is the master now, and who was it before."""
        self._found.moved(address, left or self._found.address)

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
        """A connection to whom a sentinel names; ``None`` if nobody of those can be used."""
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
        """A connection to who was named at that time, or ``None``; *tried* gets the reason."""
        left = clock.seconds_left(until)
        place = replace(self.server, host=address[0], port=address[1])
        connection = place.connection(min(each, left))
        is_master = False
        try:
            connection.connect()
            why = _why_no_master(connection)
            # Who hands over by ``SENTINEL FAILOVER`` says for seconds that it is still the master.
            if not why and not self._found.learn(address, at):
                why = "another became the master meanwhile"
            if not why:
                connection._sock.settimeout(left)
                is_master = True
        except (*FAILED, *WRONG) as error:
            if refusal_of(error) is Refusal.RIGHTS:
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

    def _unusable(self, tried: dict[Address, str]) -> str:
        each = "; ".join(f"{shown(*address)}: {why}" for address, why in tried.items())
        return f"the master {self.name!r} that its sentinels name cannot be used: {each}"


def _address_of(connection: Any) -> Address:
    return connection.host, connection.port


def _why_no_master(connection: Any) -> str:
    """Why a server that was named is not the master; empty where it is."""
    try:
        connection.send_command("HELLO", 2)
        told = connection.read_response()
    except redis.ResponseError:
        return ""  # something in front of it, or an imitation, that does not know the command
    facts = dict(zip(told[::2], told[1::2], strict=False))
    role = facts.get(b"role", b"master")
    return "" if role == b"master" else f"it is a {role.decode()}"
