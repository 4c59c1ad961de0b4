"""A Redis that is found through Redis Sentinel: whoever is the master of a group at present.

``servers/moving.py`` tells how such a master is found. Here, those who are asked are sentinels; a
server has to say itself that it is a master; and ``failover_listener.py`` listens to a sentinel, so
that a process hears at once of another one. How sentinels are asked is in ``query.py``; which of
two words counts, in ``servers/known_master.py``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from .. import clock
from ..servers.endpoint import Address, Endpoint, shown
from ..servers.known_master import MasterCache
from ..servers.moving import ASK, MovingMaster
from .failover_listener import FailoverListener
from .query import MasterQuery

# For those who let redis-py ask the sentinels: of itself it asks one that is away ten times, with
# seconds in between, and waits for one that is silent for ever.
ASKED_ONCE = {"retry": Retry(NoBackoff(), 0), "socket_timeout": ASK}


class HeardMaster(MasterCache):
    """What a process knows of a group, and what it hears that by."""

    def __init__(self) -> None:
        super().__init__()
        # One, but while a thread has it; or none yet. Two threads at once may make one each.
        self.ears: deque[FailoverListener] = deque(maxlen=1)
        self.busy_until = 0.0  # when a thread that has it has given it back, or was interrupted


@dataclass(frozen=True)
class SentinelGroup(MovingMaster):
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
    _found: HeardMaster = field(default_factory=HeardMaster, init=False, compare=False, repr=False)

    @property
    def url(self) -> str:
        """Sentinels, database and name, without logins."""
        hosts = ";".join(one.where for one in self.sentinels)
        return f"sentinel://{hosts}/{self.server.db} ({self.name})"

    @property
    def kind(self) -> str:
        """What processes that share a store must not differ in, where it is their broker."""
        return f"redis, master {self.name}, database {self.server.db}"

    @property
    def place(self) -> tuple[object, ...]:
        """Equal for two that name the same master of the same sentinels, as far as names tell."""
        sentinels = frozenset(one.address for one in self.sentinels)
        return (self.name, sentinels, self.server.tls is None, self.server.db)

    def find_master(self, until: float) -> None:
        """Take note of what a sentinel has said meanwhile; where none is listened to, begin.

        A master that hands over to another by ``SENTINEL FAILOVER`` may go on answering for ten
        seconds, and what it takes in them is lost.

        Args:
            until: When the call ends that it is for, by the monotonic clock.
        """
        super().find_master(until)
        found = self._found
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
        """Listen no more, until the next :meth:`find_master`."""
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

    def herald(self) -> FailoverListener:
        """What hears at once when another becomes the master."""
        check = self._query.check
        return FailoverListener(self.name, self.sentinels, self.ask, check, self.moved)

    @property
    def _query(self) -> MasterQuery:
        return MasterQuery(self.name, self.sentinels, self.ask, self.others)

    def _named(self, until: float, errors: list[str]) -> Iterator[Address]:
        found = self._found
        for number, address in self._query.named(found.first, until, errors, found.left):
            found.first = number  # who was right last is asked first
            yield address

    def _unknown(self, errors: list[str]) -> str:
        return self._query.unknown(errors)

    def _unusable(self, tried: dict[Address, str]) -> str:
        each = "; ".join(f"{shown(*address)}: {why}" for address, why in tried.items())
        return f"the master {self.name!r} that its sentinels name cannot be used: {each}"

    def _why_no_master(self, connection: Any) -> str:
        return _why_no_master(connection)


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
