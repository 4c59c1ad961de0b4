"""How the store talks to Redis: one command at a time, sent once, its error translated.

Scripts ---> Connection.execute ---> one of a pool, never shared with a forked child
Wakeup ----> Connection.dedicated -> one to block on, outside of the pool
"""

from __future__ import annotations

import inspect
import os
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, Protocol

import redis

from ..errors import StoreError, StoreFull, StoreUnavailable
from .endpoint import Endpoint
from .refusals import Refusal, refusal_of

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
    """What the store needs of a way to Redis."""

    def execute(self, step: str, command: list[bytes]) -> Any:
        """Send one command, once.

        Args:
            step: What it is for, as an error shall say.
            command: From :func:`packed`.

        Raises:
            StoreUnavailable: no connection, or no answer in time; whether it ran is unknown.
            StoreFull: Redis is at ``maxmemory``.
            redis.exceptions.NoScriptError: for the script loader, which knows what to do.
            StoreError: Redis refused for another reason.
        """

    def dedicated(self) -> Any:
        """A connection of redis-py to block on, connected, and closed by whoever asked for it."""

    def close(self) -> None:
        """Let go of idle connections; the next command opens new ones."""


class PooledConnection:
    """One Redis, through a lazily made pool, never shared with a forked child."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._pool: redis.ConnectionPool | None = None
        _OPEN.add(self)

    @property
    def pool(self) -> redis.ConnectionPool:
        if self._pool is None:
            self._pool = redis.ConnectionPool(
                connection_class=self._endpoint.connection_class(), **self._endpoint.options()
            )
        return self._pool

    def execute(self, step: str, command: list[bytes]) -> Any:
        with translated(step):
            pool = self.pool
            connection = pool.get_connection(*_purpose())
            try:
                text = b"*%d\r\n%s" % (len(command), b"".join(command))
                connection.send_packed_command([text], check_health=False)  # type: ignore[no-untyped-call]
                return connection.read_response()
            finally:
                pool.release(connection)

    def dedicated(self) -> Any:
        connection = self._endpoint.connection_class()(**self._endpoint.options())
        connection.connect()
        return connection

    def close(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.disconnect()

    def forget(self) -> None:
        """Drop the pool without touching its sockets or its lock; they are the parent's."""
        self._pool = None


_OPEN: weakref.WeakSet[PooledConnection] = weakref.WeakSet()


def _forget_all() -> None:
    for connection in list(_OPEN):
        connection.forget()


# A prefork child may inherit the pool's lock as some other thread held it, and wait for ever.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)


@cache
def _purpose() -> tuple[str, ...]:
    # redis-py before 5.3 wants to know what a connection is for; later it warns when it is told.
    parameters = inspect.signature(redis.ConnectionPool.get_connection).parameters
    name = parameters.get("command_name")
    return ("EVALSHA",) if name is not None and name.default is inspect.Parameter.empty else ()


@contextmanager
def translated(step: str) -> Iterator[None]:
    """Raise this package's errors instead of redis-py's."""
    try:
        yield
    except redis.exceptions.NoScriptError:
        raise
    except _AWAY as error:
        raise StoreUnavailable(step, str(error)) from error
    except redis.exceptions.RedisError as error:
        refusal = refusal_of(error)
        if refusal is Refusal.FULL:
            raise StoreFull(step, str(error)) from error
        if refusal is Refusal.AWAY:
            raise StoreUnavailable(step, str(error)) from error
        raise StoreError(step, str(error)) from error
