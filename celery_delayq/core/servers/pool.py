"""The connections to one Redis; each belongs to one caller from ``take`` to ``give`` or ``drop``.

    idle --take--> in use --give--> idle, or straight to the longest waiting caller
                     |
                     +-----drop---> closed; another one may be made

A signal handler or a gevent timeout can interrupt a caller anywhere. So there is no lock that could
stay locked, and no count that could stay wrong: every change is a single call of a deque, a set or
a queue, which nothing interrupts. If an interrupted caller loses a connection, Python closes it.
The number of connections is the number of live objects.

The shards of a store in a Cluster share one pool. Each takes only connections to its own node.
Each process has a pool of its own; see ``PerProcess``.
"""

from __future__ import annotations

import copy
import gc
import math
import os
import queue
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Generic, TypeVar

import redis

from .. import clock
from .endpoint import Server

MOST = 100  # connections of one process to one Redis
# Seconds after which an idle connection is closed. Proxies and NAT forget connections that are idle
# for a minute, some without closing them: a call would wait in vain.
IDLE = 30.0
LOOK_AGAIN = 0.1  # seconds after which a waiting caller checks whether a connection was lost
COLLECT_AGAIN = 10.0  # seconds between two searches for lost ones in Python's garbage


Made = TypeVar("Made")


class PerProcess(Generic[Made]):
    """An object for each process, made when the process needs it for the first time.

    uWSGI forks in C, and Python runs no hooks of ``os.register_at_fork`` then. So the process is
    compared each time the object is needed.

    Args:
        make: Makes the object.
    """

    def __init__(self, make: Callable[[], Made]) -> None:
        self._make = make
        self._made: dict[int, Made] = {}

    def get(self) -> Made:
        """Return this process's object, the same to all its threads."""
        try:
            return self._made[os.getpid()]
        except KeyError:
            return self._first()

    def _first(self) -> Made:
        own = os.getpid()
        made = self._made.setdefault(own, self._make())
        # The parent's is dropped here. redis-py closes such a connection without a shutdown, which
        # would end it in the parent as well.
        for other in set(self._made) - {own}:
            self._made.pop(other, None)
        return made


class Pool:
    """At most *most* connections; a caller that finds none free waits in line.

    Args:
        server: The Redis; its address may change.
        most: The maximum number of connections; ``MOST`` by default.
        reach: Maximum seconds for each step of connecting.
    """

    def __init__(self, server: Server, most: int | None = None, reach: float = math.inf) -> None:
        self._server = server
        self._most = MOST if most is None else most
        self._reach = reach
        # The connection returned last is taken first, so the others can expire.
        self._idle: deque[tuple[Any, float]] = deque()
        self._line: deque[queue.SimpleQueue[Any]] = deque()
        self._alive: set[weakref.ref[Any]] = set()
        self._collect_from = 0.0

    def at(self, server: Server) -> Pool:
        """Return the same pool, for callers of another node of the same Cluster."""
        other = copy.copy(self)
        other._server = server
        return other

    def take(self, until: float) -> Any:
        """Return an open connection that has nothing left to read.

        Raises:
            TimeoutError: all connections were in use until *until*, by the monotonic clock.
        """
        connection = self._at_hand(until)
        return self._in_line(until) if connection is None else connection

    def give(self, connection: Any) -> None:
        """Take a connection back, after all its answers were read.

        Close it if the server has left its address, and no other shard has its server there.
        """
        server = self._server
        if server.may_move and server.is_replaced(connection) and not server.is_shared(connection):
            self.drop(connection)
            return
        try:
            first = self._line.popleft()
        except IndexError:
            self._idle.append((connection, clock.monotonic()))
        else:
            first.put(connection)

    def drop(self, connection: Any) -> None:
        """Close a connection that is broken, or on which an answer may still come."""
        with suppress(OSError, redis.RedisError):
            connection.disconnect()
        self._alive.discard(weakref.ref(connection))
        with suppress(IndexError):
            self._line.popleft().put(None)

    def close(self) -> None:
        """Close the idle connections."""
        with suppress(IndexError):
            while True:
                self.drop(self._idle.pop()[0])

    def _at_hand(self, until: float) -> Any:
        for idle in reversed(tuple(self._idle)):
            if not self._is_of_others(*idle) and self._removed(idle) and self._is_ready(*idle):
                return idle[0]
        return self._made(until)

    def _removed(self, idle: tuple[Any, float]) -> bool:
        """Take this one out, unless another caller has done so."""
        try:
            self._idle.remove(idle)
        except (ValueError, IndexError):
            return False
        return True

    def _is_of_others(self, connection: Any, since: float) -> bool:
        """Whether only other shards can use an idle connection."""
        server, rested = self._server, clock.monotonic() - since
        is_ours = not server.may_move or server.is_current(connection)
        return not is_ours and rested < IDLE and server.is_shared(connection)

    def _is_ready(self, connection: Any, since: float) -> bool:
        """Return whether a connection can be used; if not, close it.

        It must be open, silent, not idle for too long, and lead to the server's current address.
        """
        try:
            leads_there = not self._server.may_move or self._server.is_current(connection)
            rested = clock.monotonic() - since
            ready = rested < IDLE and leads_there and not connection.can_read()
        except (redis.RedisError, OSError):
            ready = False
        except BaseException:
            self.drop(connection)
            raise
        if not ready:
            self.drop(connection)
        return ready

    def _made(self, until: float) -> Any:
        if len(self._alive) >= self._most:
            self._forget_lost()
            for idle in tuple(self._idle):
                if self._is_of_others(*idle) and self._removed(idle):
                    self.drop(idle[0])
                    break
            if len(self._alive) >= self._most:
                return None
        connection = self._server.connection(min(self._reach, clock.seconds_left(until)))
        self._alive.add(weakref.ref(connection))
        if len(self._alive) > self._most:
            # Another caller closed it already.
            self._alive.discard(weakref.ref(connection))
            return None
        try:
            connection.connect()
        except BaseException:
            self.drop(connection)
            raise
        return connection

    def _forget_lost(self) -> None:
        for reference in tuple(self._alive):
            if reference() is None:
                self._alive.discard(reference)

    def _in_line(self, until: float) -> Any:
        place: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._line.append(place)
        try:
            while clock.monotonic() < until:
                # Check again once in line: a connection returned before would not be passed on.
                connection = self._at_hand(until)
                if connection is None:
                    connection = self._handed(place, until)
                if connection is not None:
                    return connection
                if place not in self._line:
                    self._line.appendleft(place)
        finally:
            with suppress(ValueError):
                self._line.remove(place)
        raise TimeoutError(f"all {self._most} connections of this process were in use")

    def _handed(self, place: queue.SimpleQueue[Any], until: float) -> Any:
        try:
            connection = place.get(timeout=min(LOOK_AGAIN, clock.seconds_left(until)))
        except queue.Empty:
            self._collect()
            return None
        is_ready = connection is not None and self._is_ready(connection, clock.monotonic())
        return connection if is_ready else None

    def _collect(self) -> None:
        # The traceback of an interrupted call may be in a reference cycle, and hold its connection.
        now = clock.monotonic()
        if now >= self._collect_from:
            self._collect_from = now + COLLECT_AGAIN
            gc.collect()
