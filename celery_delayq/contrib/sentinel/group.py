"""A Redis that is found through Redis Sentinel: the current master of a group.

``contrib/moving.py`` describes how a process finds such a master. Here it asks sentinels, and a
server has to confirm that it is a master. ``failover_listener.py`` hears of a new master at once;
``query.py`` asks the sentinels.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from ...core import clock
from ...core.servers.endpoint import Address, Endpoint, shown
from ...core.servers.pool import PerProcess
from ..known_master import MasterCache
from ..moving import ASK, MovingMaster
from .failover_listener import FailoverListener
from .query import MasterQuery

# For queries by redis-py: by default it asks a sentinel that is down ten times, with seconds in
# between, and waits forever for a silent one.
ASKED_ONCE = {"retry": Retry(NoBackoff(), 0), "socket_timeout": ASK}


class Ears:
    """How a process hears of a new master.

    Attributes:
        idle: The listener, unless a thread is using it; empty at first. Two threads may make one
            each.
        busy_until: By then a thread has given it back, or was interrupted.
    """

    def __init__(self) -> None:
        self.idle: deque[FailoverListener] = deque(maxlen=1)
        self.busy_until = 0.0


class HeardMaster(MasterCache):
    """The master of a group, as a process knows it, and what it hears of a new one by."""

    def __init__(self) -> None:
        super().__init__()
        self.ears = PerProcess(Ears)


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
    _found: HeardMaster = field(default_factory=HeardMaster, init=False, compare=False, repr=False)

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
