"""The connections to one Redis; each is one caller's from ``take`` to ``give`` or ``drop``.

    idle --take--> in use --give--> idle, or straight to who has waited longest
                     |
                     +-----drop---> closed; another one may be made

A caller can be interrupted anywhere, by the handler of a signal or a time-out of gevent's. So there
is no lock that could stay locked, and no count that could stay wrong: every change is a single call
of a deque, a set or a queue, which nothing interrupts. What an interrupted caller loses on its way
belongs to nobody, and Python closes it; how many there are is how many are alive.
"""

from __future__ import annotations

import gc
import math
import queue
import weakref
from collections import deque
from contextlib import suppress
from typing import Any

import redis

from .. import clock
from .endpoint import Server

MOST = 100  # connections of one process to one Redis
# Seconds after which an idle connection is not trusted any more. Proxies and address translation
# forget those that rest for a minute, and not all of them say so: a call would wait in vain.
IDLE = 30.0
LOOK_AGAIN = 0.1  # seconds after which who waits looks whether a connection was lost
COLLECT_AGAIN = 10.0  # seconds between two searches for one among Python's garbage


class Pool:
    """At most *most* connections; whoever finds none waits in line for one.

    Args:
        server: Where they lead; another address may take over.
        most: How many connections there may be at a time.
        reach: Seconds for each step of connecting, at most.
    """

    def __init__(self, server: Server, most: int = MOST, reach: float = math.inf) -> None:
        self._server = server
        self._most = most
        self._reach = reach
        # The last one that was given back is the first to be taken: the others may rest.
        self._idle: deque[tuple[Any, float]] = deque()
        self._line: deque[queue.SimpleQueue[Any]] = deque()
        self._alive: set[weakref.ref[Any]] = set()
        self._collect_from = 0.0

    def take(self, until: float) -> Any:
        """A connection that is connected and has nothing left to read.

        Raises:
            TimeoutError: every connection was in use until *until*, a time of the monotonic clock.
        """
        connection = self._at_hand(until)
        return self._in_line(until) if connection is None else connection

    def give(self, connection: Any) -> None:
        """Take a connection back; whatever it was asked has been answered, and the answer read.

        It is closed where another address has taken over from its own.
        """
        if self._server.may_move and self._server.is_replaced(connection):
            self.drop(connection)
            return
        try:
            first = self._line.popleft()
        except IndexError:
            self._idle.append((connection, clock.monotonic()))
        else:
            first.put(connection)

    def drop(self, connection: Any) -> None:
        """Close a connection that may still bring an answer, or is broken."""
        with suppress(OSError, redis.RedisError):
            connection.disconnect()
        self._alive.discard(weakref.ref(connection))
        with suppress(IndexError):
            self._line.popleft().put(None)

    def close(self) -> None:
        """Close what is idle."""
        with suppress(IndexError):
            while True:
                self.drop(self._idle.pop()[0])

    def _at_hand(self, until: float) -> Any:
        with suppress(IndexError):
            while True:
                connection, since = self._idle.pop()
                if self._is_ready(connection, since):
                    return connection
        return self._made(until)

    def _is_ready(self, connection: Any, since: float) -> bool:
        """Whether it can be used; if not it is closed.

        It has not been idle for too long, leads where the server is now, is connected, and silent.
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
            if len(self._alive) >= self._most:
                return None
        connection = self._server.connection(min(self._reach, clock.seconds_left(until)))
        self._alive.add(weakref.ref(connection))
        if len(self._alive) > self._most:
            # Somebody else had the same thought.
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
                # Looked at when in line: one that was given back before would not come here.
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
        # The traceback of an interrupted call may be part of a circle, and hold its connection.
        now = clock.monotonic()
        if now >= self._collect_from:
            self._collect_from = now + COLLECT_AGAIN
            gc.collect()
