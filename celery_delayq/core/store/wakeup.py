"""Waits for a time, a message from Redis, or a call of ``interrupt``; whichever comes first.

    script --PUBLISH--> wake:NAME    the scanner that is up next, if it must wake earlier
                        wake         all scanners, if none has promised to wake

Before its first look, a scanner subscribes to both channels of each shard over one connection, so
messages sent while it looks wait in the socket. Messages may be lost: the safety interval covers
that. The timer is this process's own.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import redis

from .. import clock
from ..hooks import Hooks
from ..servers.connection import Connection, Refusal, refusal_of, translated
from ..servers.endpoint import TIMEOUT
from ..text import logger_of
from .keys import Keys

FD_SETSIZE = 1024  # descriptors that select() can watch
PING_AFTER = 30.0  # seconds of silence before Redis gets a PING
# A wait that begins up to so many seconds earlier sends the PING at once: the caller has just sent
# another command, and Redis wakes once for both.
_EARLY = 9.0

logger = logger_of(__name__)


class Wakeup:
    """A subscription with a timer. One thread waits, any may interrupt.

    Args:
        connection: The connection to the Redis of all shards.
        shards: Their keys; a shard's place among them is its number here.
        scanner: The scanner's name, as scripts use it.
        hooks: Hear if a message says that a recurring rule was set or resumed, and at each
            subscription, as messages before that are lost.
    """

    def __init__(
        self,
        connection: Connection,
        shards: Iterable[Keys],
        scanner: str,
        hooks: Hooks | None = None,
    ) -> None:
        self._hooks = hooks or Hooks()
        self._source = connection
        self._keys = list(shards)
        self._herald = connection.herald()
        self._connection: Any = None
        self._ping_at = 0.0
        self._answer_by = 0.0
        self._deaf_until = 0.0
        self._inner, self._outer = socket.socketpair()
        self.name_is(scanner)

    def name_is(self, scanner: str) -> None:
        """Listen, from the next :meth:`listen` on, to the channels of a scanner of this name."""
        self._disconnect()
        self._shards = {
            channel.encode(): number
            for number, keys in enumerate(self._keys)
            for channel in keys.channels(scanner)
        }

    def listen(self) -> bool:
        """Subscribe, unless that is done; return whether it was done now.

        If Redis refuses or cannot subscribe, no messages arrive, and a warning says so.

        Raises:
            StoreUnavailable: Redis cannot be reached.
        """
        if self._herald is not None:
            self._herald.listen()
        if self._connection is not None and not self._source.is_current(self._connection):
            self._disconnect()
        if self._connection is not None or clock.monotonic() < self._deaf_until:
            return False
        with translated("wake"):
            try:
                return self._subscribe()
            except BaseException:
                self._disconnect()
                raise

    def _subscribe(self) -> bool:
        self._connection = self._source.dedicated()
        self._connection.send_command("SUBSCRIBE", *self._shards)
        try:
            for _ in self._shards:
                self._connection.read_response()
        except redis.ResponseError as error:
            if not _is_never(error):
                raise
            self._disconnect()
            if not self._deaf_until:
                logger.warning(
                    "Redis refused SUBSCRIBE, so a task due before all others may wait for up to "
                    "delayq_safety_interval: %s",
                    error,
                )
            self._deaf_until = clock.monotonic() + PING_AFTER
            return False
        self._note_life()
        self._hooks.rules_changed()  # one may have been, while nobody heard it
        return True

    def wait(self, seconds: float) -> set[int]:
        """Wait at most *seconds*; return the shards with something to look at.

        Raises:
            StoreUnavailable: the connection broke, or was silent for too long; messages may be
                lost. After the next :meth:`listen`, look at all shards.
        """
        with translated("wake"):
            try:
                return self._wait(clock.monotonic() + seconds)
            except BaseException:
                self._disconnect()
                raise

    def _wait(self, until: float) -> set[int]:
        self._ask_for_life(_EARLY)
        while True:
            self._ask_for_life()
            now = clock.monotonic()
            ready = _readable(self._sockets(), max(0.0, min(until, self._next_look()) - now))
            woken = self._told(ready)
            if self._inner in ready:
                self._inner.recv(4096)
                return woken
            if self._answer_by and clock.monotonic() >= self._answer_by:
                raise TimeoutError(f"no answer to a PING within {TIMEOUT} s")
            if woken or clock.monotonic() >= until:
                return woken

    def _told(self, ready: list[Any]) -> set[int]:
        heard = self._herald.sockets if self._herald else []
        if self._herald and heard and heard[0] in ready and self._herald.hear():
            return set(self._shards.values())  # at the new master, after the next `listen`
        own = any(readable is not self._inner and readable not in heard for readable in ready)
        return self._read() if own else set()

    def _sockets(self) -> list[Any]:
        own = [self._connection._sock] if self._connection else []
        return [self._inner, *own, *(self._herald.sockets if self._herald else [])]

    def _next_look(self) -> float:
        if self._connection is None:
            return float("inf")
        return self._answer_by or self._ping_at

    def _ask_for_life(self, early: float = 0.0) -> None:
        if self._connection is not None and not self._answer_by:
            now = clock.monotonic()
            if now >= self._ping_at - early:
                self._connection.send_command("PING")
                self._answer_by = now + TIMEOUT

    def _note_life(self) -> None:
        self._answer_by = 0.0
        self._ping_at = clock.monotonic() + PING_AFTER

    def _read(self) -> set[int]:
        woken = set()
        # Read all of it: the socket does not show what redis-py has read ahead.
        while self._connection is not None and self._connection.can_read():
            try:
                kind, *rest = self._connection.read_response()
            except redis.ResponseError as error:
                # If this user may not PING, a refusal is a sign of life as well.
                if not _is_never(error):
                    raise
                kind = b""
            if kind == b"message":
                woken.add(self._shards[rest[0]])
                if rest[1] == b"rules":
                    self._hooks.rules_changed()
            self._note_life()
        return woken

    def rest(self, seconds: float) -> None:
        """Wait *seconds*; end early if the master was down and another one is announced.

        The next :meth:`listen` subscribes anew: if another connection failed, this one may be dead
        too, without any notice.
        """
        until = clock.monotonic() + seconds
        self._disconnect()
        if self._herald is not None:
            self._herald.listen()
        while (left := until - clock.monotonic()) > 0:
            heard = self._herald.sockets if self._herald else []
            ready = _readable([self._inner, *heard], left)
            if self._inner in ready:
                self._inner.recv(4096)
                return
            if ready and self._herald and self._herald.hear():
                return

    def interrupt(self) -> None:
        """End the current or the next wait or rest; callable from any thread."""
        with suppress(OSError):  # closed already
            self._outer.send(b"x")

    def close(self) -> None:
        self._disconnect()
        if self._herald is not None:
            self._herald.close()
        self._inner.close()
        self._outer.close()

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.disconnect()


def _is_never(error: redis.ResponseError) -> bool:
    """Return whether the command is refused for good: a missing right, or an unknown command."""
    return refusal_of(error) in (None, Refusal.RIGHTS)


def _readable(sockets: list[Any], seconds: float) -> list[Any]:
    # select() counts in microseconds; poll() and epoll round up to the next millisecond, which
    # would be most of a scanner's lateness. But it takes no descriptor past 1023.
    if max(sock.fileno() for sock in sockets) < FD_SETSIZE:
        return select.select(sockets, [], [], seconds)[0]
    poll = select.poll()
    by_number = {sock.fileno(): sock for sock in sockets}
    for number in by_number:
        poll.register(number, select.POLLIN)
    return [by_number[number] for number, _ in poll.poll(seconds * 1000)]
