"""Sends commands to Redis: one at a time, each once, with translated errors.

Scripts ---> Connection.execute ---> one from this process's pool
Wakeup ----> Connection.dedicated -> one to block on, outside the pool

A connection returns to the pool only after its answer was read. So even if a call is interrupted,
no other call reads its answer.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import redis

from .. import clock
from ..errors import StoreDiffers, StoreError, StoreFull, StoreUnavailable
from . import endpoint as defaults
from .endpoint import Address, Listener, Server
from .pool import PerProcess, Pool
from .refusals import Refusal, refusal_of, said_of, why_of

_AWAY = (
    redis.exceptions.ConnectionError,
    redis.exceptions.TimeoutError,
    OSError,
)


def packed(parts: Iterable[bytes | str | int]) -> list[bytes]:
    """Return a command as bulk strings of the Redis protocol.

    In redis-py, packing takes a third of the time of a call with twenty arguments.
    """
    texts = [part if isinstance(part, bytes) else str(part).encode() for part in parts]
    return [b"$%d\r\n%s\r\n" % (len(text), text) for text in texts]


class Connection(Protocol):
    """A connection to a Redis, as the other parts use it."""

    def execute(self, step: str, command: list[bytes], until: float | None = None) -> Any:
        """Send one command, once.

        Args:
            step: The step's name in errors.
            command: From :func:`packed`.
            until: When to give up, by the monotonic clock; by default after this connection's time
                limit for a call.

        Raises:
            StoreUnavailable: no connection, or no answer in time; whether it ran is unknown.
            StoreFull: Redis is at ``maxmemory``.
            redis.exceptions.NoScriptError: for the script loader, which handles it.
            StoreError: Redis refused for another reason.
        """

    def exchange(
        self, step: str, commands: list[list[bytes]], until: float | None = None
    ) -> list[Any]:
        """Send commands on one connection, each once, and return the answer to each.

        Args:
            step: As for :meth:`execute`.
            commands: Each from :func:`packed`.
            until: As for :meth:`execute`.

        Raises:
            StoreError: as :meth:`execute`, for the first refused command; the others may have run.
        """

    @property
    def node(self) -> Address | None:
        """The server's address; ``None``: it must be looked up."""

    def at(self, slot: int) -> Connection:
        """Return a connection to the server of a slot of a Redis Cluster, over the same pool."""

    def dedicated(self) -> Any:
        """Return a connected redis-py connection to block on; the caller closes it."""

    def is_current(self, dedicated: Any) -> bool:
        """Whether such a connection still leads to the server; after a failover it does not."""

    def herald(self) -> Listener | None:
        """Return the listener for a change of address, if the server can move."""

    def close(self) -> None:
        """Close idle connections; the next command opens new ones."""


class PooledConnection:
    """One Redis, through a pool for each process.

    Args:
        server: The Redis.
        timeout: Seconds that a call may take: waiting for a free connection, connecting, sending
            and reading.
        reach: Seconds that each step of connecting may take, if less.
    """

    def __init__(
        self, server: Server, timeout: float | None = None, reach: float = math.inf
    ) -> None:
        self._server = server
        self._timeout = timeout
        self._reach = reach
        self._pool = PerProcess(lambda: Pool(server, reach=reach))

    @property
    def pool(self) -> Pool:
        """The pool of this process: with its parent's, a forked child would read its answers."""
        return self._pool.get()

    @property
    def node(self) -> Address | None:
        return self._server.node

    def at(self, slot: int) -> PooledConnection:
        server = self._server.at(slot)
        if server is self._server:
            return self
        part = copy.copy(self)
        part._server, part._pool = server, PerProcess(lambda: self.pool.at(server))
        return part

    def execute(self, step: str, command: list[bytes], until: float | None = None) -> Any:
        return self.exchange(step, [command], until)[0]

    def exchange(
        self, step: str, commands: list[list[bytes]], until: float | None = None
    ) -> list[Any]:
        if until is None:
            until = clock.monotonic() + (self._timeout or defaults.TIMEOUT)
        turn = 0
        while True:
            try:
                return self._exchange(step, commands, until)
            except StoreError as error:
                pause = self._server.again_after(error.__cause__, turn)
                # Among several commands, the refused one may be the last.
                may_have_run = len(commands) > 1
                if pause is not None and clock.seconds_left(until) <= pause:
                    why = f"refused until the call's time was over: {said_of(error.__cause__)}"
                    raise StoreUnavailable(step, why, may_have_run) from error.__cause__
                if pause is None:
                    if turn and may_have_run and isinstance(error, StoreUnavailable):
                        raise StoreUnavailable(step, error.why) from error
                    raise
            clock.sleep(pause)
            turn += 1

    def _exchange(self, step: str, commands: list[list[bytes]], until: float) -> list[Any]:
        pool = self._pool.get()
        if self._server.may_move:
            self._server.find_master(until)
        with translated(step, may_have_run=False):
            connection = pool.take(until)
        with translated(step):
            try:
                connection._sock.settimeout(clock.seconds_left(until))
                texts = [b"*%d\r\n%s" % (len(command), b"".join(command)) for command in commands]
                connection.send_packed_command([b"".join(texts)], check_health=False)
                answers = [self._answer(connection, until) for _ in commands]
            except _AWAY:
                self._server.lost(connection)
                pool.drop(connection)
                raise
            except BaseException:
                # The call was interrupted; that says nothing about the server.
                pool.drop(connection)
                raise
            refused = [answer for answer in answers if isinstance(answer, redis.ResponseError)]
            for error in refused:
                self._server.refused(connection, error)
            pool.give(connection)
            # Do not use it from here on: another call may have it already.
            if refused:
                raise refused[0]
            return answers

    def _answer(self, connection: Any, until: float) -> Any:
        """Return the next answer; an error is returned too, so that later answers are read."""
        if self._server.may_move:
            self._server.wait(connection, until)
        connection._sock.settimeout(clock.seconds_left(until))
        try:
            return connection.read_response()
        except redis.ResponseError as error:
            return error

    def dedicated(self) -> Any:
        # In a Cluster, each node passes on what is published.
        connection = self._server.known().connection(
            min(self._reach, self._timeout or defaults.TIMEOUT)
        )
        try:
            connection.connect()
        except BaseException:
            connection.disconnect()
            raise
        return connection

    def herald(self) -> Listener | None:
        return self._server.herald()

    def is_current(self, dedicated: Any) -> bool:
        return self._server.is_current(dedicated) or self._server.is_shared(dedicated)

    def close(self) -> None:
        self.pool.close()
        self._server.close()


@contextmanager
def translated(step: str, *, may_have_run: bool = True) -> Iterator[None]:
    """Translate redis-py's errors into this package's.

    Args:
        step: The step's name in the error.
        may_have_run: Whether a command was sent and not answered.
    """
    try:
        yield
    except redis.exceptions.NoScriptError:
        raise
    except _AWAY as error:
        raise StoreUnavailable(step, str(error), may_have_run) from error
    except redis.exceptions.RedisError as error:
        refusal = refusal_of(error)
        why = str(error) if refusal is None else why_of(error)
        if refusal is Refusal.FULL:
            raise StoreFull(step, why) from error
        if refusal is Refusal.AWAY:
            raise StoreUnavailable(step, why, False) from error
        if refusal is Refusal.RESHARDED:
            _, ours, theirs = why.split()
            raise StoreDiffers("delayq_shards", theirs, ours) from error
        raise StoreError(step, why) from error
