"""How one talks to Redis: one command at a time, sent once, its error translated.

Scripts ---> Connection.execute ---> one of a pool, never shared with a forked child
Wakeup ----> Connection.dedicated -> one to block on, outside of the pool

A connection goes back to the pool with its answer read, or not at all. So nobody reads the answer
to another's command, wherever a call is interrupted.
"""

from __future__ import annotations

import math
import os
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import redis

from .. import clock
from ..errors import StoreError, StoreFull, StoreUnavailable
from . import endpoint as defaults
from .endpoint import Listener, Server
from .pool import Pool
from .refusals import Refusal, refusal_of, said_of, why_of

_AWAY = (
    redis.exceptions.ConnectionError,
    redis.exceptions.TimeoutError,
    OSError,
)


def packed(parts: Iterable[bytes | str | int]) -> list[bytes]:
    """The parts of a command as bulk strings of the Redis protocol.

    redis-py's own packing takes a third of the time of a call with twenty arguments.
    """
    texts = [part if isinstance(part, bytes) else str(part).encode() for part in parts]
    return [b"$%d\r\n%s\r\n" % (len(text), text) for text in texts]


class Connection(Protocol):
    """A way to a Redis."""

    def execute(self, step: str, command: list[bytes], until: float | None = None) -> Any:
        """Send one command, once.

        Args:
            step: What it is for, as an error shall say.
            command: From :func:`packed`.
            until: When to give up, by the monotonic clock; by default after the time that this
                connection allows a call.

        Raises:
            StoreUnavailable: no connection, or no answer in time; whether it ran is unknown.
            StoreFull: Redis is at ``maxmemory``.
            redis.exceptions.NoScriptError: for the script loader, which knows what to do.
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
            StoreError: as :meth:`execute`, of the first that was refused; the others may have run.
        """

    def dedicated(self) -> Any:
        """A connection of redis-py to block on, connected, and closed by whoever asked for it."""

    def is_current(self, dedicated: Any) -> bool:
        """Whether such a connection still leads to the server; another may have taken over."""

    def herald(self) -> Listener | None:
        """What hears when another address takes over, if that can be."""

    def close(self) -> None:
        """Let go of idle connections; the next command opens new ones."""


class PooledConnection:
    """One Redis, through a pool that is never shared with a forked child.

    Args:
        server: Where it is.
        timeout: Seconds that a call takes at most: waiting for a free connection, connecting,
            sending and reading.
        reach: Seconds that each step of connecting takes at most, where that is less.
    """

    def __init__(
        self, server: Server, timeout: float | None = None, reach: float = math.inf
    ) -> None:
        self._server = server
        self._timeout = timeout
        self._reach = reach
        self.pool = Pool(server, reach=reach)
        _OPEN.add(self)

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
                # Of several commands, the one that was refused may have been the last.
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
        pool = self.pool
        if self._server.may_move:
            self._server.find_master(until)
        with translated(step, may_have_run=False):
            connection = pool.take(until)
        with translated(step):
            try:
                connection._sock.settimeout(clock.seconds_left(until))
                texts = [b"*%d\r\n%s" % (len(one), b"".join(one)) for one in commands]
                connection.send_packed_command([b"".join(texts)], check_health=False)
                answers = [self._answer(connection, until) for _ in commands]
            except _AWAY:
                self._server.lost(connection)
                pool.drop(connection)
                raise
            except BaseException:
                # It was interrupted, which says nothing of the server.
                pool.drop(connection)
                raise
            refused = [one for one in answers if isinstance(one, redis.ResponseError)]
            for error in refused:
                self._server.refused(connection, error)
            pool.give(connection)
            # Not to be touched from here on: another call may have it already.
            if refused:
                raise refused[0]
            return answers

    def _answer(self, connection: Any, until: float) -> Any:
        """What comes next; of a refusal the error, as what comes behind it is to be read, too."""
        if self._server.may_move:
            self._server.wait(connection, until)
        connection._sock.settimeout(clock.seconds_left(until))
        try:
            return connection.read_response()
        except redis.ResponseError as error:
            return error

    def dedicated(self) -> Any:
        connection = self._server.connection(min(self._reach, defaults.TIMEOUT))
        try:
            connection.connect()
        except BaseException:
            connection.disconnect()
            raise
        return connection

    def herald(self) -> Listener | None:
        return self._server.herald()

    def is_current(self, dedicated: Any) -> bool:
        return self._server.is_current(dedicated)

    def close(self) -> None:
        self.pool.close()
        self._server.close()

    def forget(self) -> None:
        """Drop the pool without touching its sockets; they are the parent's."""
        self.pool = Pool(self._server, reach=self._reach)
        self._server.forget()


_OPEN: weakref.WeakSet[PooledConnection] = weakref.WeakSet()


def _forget_all() -> None:
    for connection in list(_OPEN):
        connection.forget()


# A prefork child would read its parent's answers.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)


@contextmanager
def translated(step: str, *, may_have_run: bool = True) -> Iterator[None]:
    """Raise this package's errors instead of redis-py's.

    Args:
        step: What it is for, as the error shall say.
        may_have_run: Whether a command that was not answered was sent.
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
        raise StoreError(step, why) from error
