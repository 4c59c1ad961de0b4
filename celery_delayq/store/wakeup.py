"""Waiting for whichever comes first: a time, a token in Redis, or a call of ``interrupt``.

The timer is this process's own. A blocking pop's time-out is no timer: Redis looks at it ``hz``
times a second, so it comes up to 100 ms late. The pop stays outstanding while the timer runs, and
from one wait to the next, so an idle scanner sends next to nothing.
"""

from __future__ import annotations

import select
import socket
from contextlib import suppress
from typing import Any

from .. import clock
from .connection import Connection, translated
from .endpoint import TIMEOUT

FD_SETSIZE = 1024  # descriptors that select() can watch
BLOCK = 30  # seconds that Redis holds a pop open; longer silence means that the link is dead


class Wakeup:
    """A blocked pop on its own connection, beside a timer. One thread waits, any may interrupt."""

    def __init__(self, connection: Connection, key: str) -> None:
        self._source = connection
        self._key = key
        self._connection: Any = None
        self._answer_by = 0.0
        self._inner, self._outer = socket.socketpair()

    def wait(self, seconds: float) -> bool:
        """Wait at most *seconds*; returns whether a token came.

        Raises:
            StoreUnavailable: the connection broke, or has been silent for too long. The next
                call makes a new one.
        """
        with translated("wake"):
            try:
                return self._wait(seconds)
            except BaseException:
                self._disconnect()
                raise

    def _wait(self, seconds: float) -> bool:
        until = clock.monotonic() + seconds
        connection = self._listening()
        while True:
            left = min(until, self._answer_by) - clock.monotonic()
            ready = _readable([connection._sock, self._inner], max(0.0, left))
            if self._inner in ready:
                self._inner.recv(4096)
                return False
            if ready:
                self._answer_by = 0.0
                if connection.read_response() is not None:
                    return True
                connection = self._listening()
            elif clock.monotonic() >= self._answer_by:
                raise TimeoutError(f"no answer to a blocking pop within {BLOCK + TIMEOUT} s")
            elif clock.monotonic() >= until:
                return False

    def _listening(self) -> Any:
        if self._connection is None:
            self._connection = self._source.dedicated()
            self._answer_by = 0.0
        if not self._answer_by:
            self._connection.send_command("BLPOP", self._key, BLOCK)
            self._answer_by = clock.monotonic() + BLOCK + TIMEOUT
        return self._connection

    def interrupt(self) -> None:
        """End a wait that is under way, or the next one; callable from any thread."""
        with suppress(OSError):  # closed already
            self._outer.send(b"x")

    def close(self) -> None:
        self._disconnect()
        self._inner.close()
        self._outer.close()

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.disconnect()


def _readable(sockets: list[Any], seconds: float) -> list[Any]:
    # select() counts in microseconds where poll() and epoll round up to the next millisecond,
    # which would be most of a scanner's lateness. It takes no descriptor past 1023, though.
    if max(sock.fileno() for sock in sockets) < FD_SETSIZE:
        return select.select(sockets, [], [], seconds)[0]
    poll = select.poll()
    by_number = {sock.fileno(): sock for sock in sockets}
    for number in by_number:
        poll.register(number, select.POLLIN)
    return [by_number[number] for number, _ in poll.poll(seconds * 1000)]
