"""The connections to Redis, with every setting that matters owned here.

redis-py repeats commands by itself after a connection error (ten times in version 8), which
turns one push into eleven; it also changed its time-outs and protocol between versions. So
retries, time-outs, protocol and decoding are set here and nowhere else.
"""

from __future__ import annotations

import inspect
import os
import re
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from ..errors import StoreError, StoreFull, StoreUnavailable

TIMEOUT = 5.0  # seconds: for connecting, and for any answer

_AWAY = (
    redis.exceptions.ConnectionError,
    redis.exceptions.TimeoutError,
    redis.exceptions.ReadOnlyError,
    redis.exceptions.TryAgainError,
    redis.exceptions.ClusterDownError,
    redis.exceptions.MasterDownError,
    OSError,
)

# Error codes as they stand in a reply: at its beginning or, before Redis 7, inside the report of a
# script's error. Some have a class in redis-py, which strips them.
_REFUSALS = re.compile(
    r"(?:^|-)(?:(?P<full>OOM)"
    r"|(?P<away>BUSY|CLUSTERDOWN|LOADING|MASTERDOWN|MISCONF|NOREPLICAS|READONLY|TRYAGAIN))\b"
)


@dataclass(frozen=True)
class Endpoint:
    """Where a Redis is: host and port, or the path of its socket, and how to be let in."""

    host: str = "localhost"
    port: int = 6379
    db: int = 0
    path: str | None = None
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: dict[str, Any] | None = field(default=None, repr=False)

    def same_database(self, other: Endpoint) -> bool:
        """Whether both name the same database of the same server, as far as names tell."""
        return self._place() == other._place()

    def _place(self) -> tuple[object, ...]:
        if self.path:
            return (self.path, self.db)
        host = "localhost" if self.host == "127.0.0.1" else self.host
        return (host, self.port, self.db)

    def options(self) -> dict[str, Any]:
        """Keyword arguments for redis-py's connection, shared by every use."""
        where: dict[str, Any] = {"path": self.path}
        if not self.path:
            where = {
                "host": self.host,
                "port": self.port,
                "socket_keepalive": True,
                "socket_connect_timeout": TIMEOUT,
                **(self.tls or {}),
            }
        return {
            **where,
            "db": self.db,
            "username": self.username,
            "password": self.password,
            "socket_timeout": TIMEOUT,
            "retry": Retry(NoBackoff(), 0),
            "retry_on_timeout": False,
            "protocol": 2,
            "decode_responses": False,
            "client_name": "celery_delayq",
        }

    def connection_class(self) -> Any:
        if self.path:
            return redis.UnixDomainSocketConnection
        return redis.SSLConnection if self.tls is not None else redis.Connection


def packed(parts: Iterable[bytes | str | int]) -> list[bytes]:
    """The parts of a command as bulk strings of the Redis protocol.

    redis-py's own packing takes a third of the time of a call with twenty arguments.
    """
    texts = [part if isinstance(part, bytes) else str(part).encode() for part in parts]
    return [b"$%d\r\n%s\r\n" % (len(text), text) for text in texts]


class Client:
    """A lazily made pool of connections, never shared with a forked child."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._pool: redis.ConnectionPool | None = None
        _CLIENTS.add(self)

    @property
    def pool(self) -> redis.ConnectionPool:
        if self._pool is None:
            self._pool = redis.ConnectionPool(
                connection_class=self.endpoint.connection_class(), **self.endpoint.options()
            )
        return self._pool

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
        with translated(step):
            pool = self.pool
            connection = pool.get_connection(*_CONNECTION_FOR)
            try:
                text = b"*%d\r\n%s" % (len(command), b"".join(command))
                connection.send_packed_command([text], check_health=False)  # type: ignore[no-untyped-call]
                return connection.read_response()
            finally:
                pool.release(connection)

    def close(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.disconnect()

    def forget(self) -> None:
        """Drop the pool without touching its sockets or its lock; they are the parent's."""
        self._pool = None


# redis-py before 5.3 wants to know what a connection is for; later it warns when it is told.
_CONNECTION_FOR = (
    ("EVALSHA",)
    if inspect.signature(redis.ConnectionPool.get_connection).parameters["command_name"].default
    is inspect.Parameter.empty
    else ()
)

_CLIENTS: weakref.WeakSet[Client] = weakref.WeakSet()


def _forget_all() -> None:
    for client in list(_CLIENTS):
        client.forget()


# A prefork child may inherit the pool's lock as some other thread held it, and wait for ever.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)


@contextmanager
def translated(step: str) -> Iterator[None]:
    """Raise this package's errors instead of redis-py's."""
    try:
        yield
    except redis.exceptions.NoScriptError:
        raise
    except _AWAY as error:
        raise StoreUnavailable(step, str(error)) from error
    except redis.exceptions.OutOfMemoryError as error:
        raise StoreFull(step, str(error)) from error
    except redis.exceptions.RedisError as error:
        kind = _REFUSALS.search(str(error))
        if kind and kind.lastgroup == "full":
            raise StoreFull(step, str(error)) from error
        if kind:
            raise StoreUnavailable(step, str(error)) from error
        raise StoreError(step, str(error)) from error
