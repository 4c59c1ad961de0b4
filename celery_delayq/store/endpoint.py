"""Where a Redis is, and how to be let in.

Every setting of redis-py that matters is owned here. It repeats commands by itself after a
connection error (ten times in version 8), which turns one push into eleven, and it changed its
time-outs and protocol between versions. So retries, time-outs, protocol and decoding are set.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

TIMEOUT = 5.0  # seconds: for connecting, and for any answer, where nothing else is said
NAME = "celery_delayq"  # of our connections, as CLIENT LIST shows it


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

    @property
    def url(self) -> str:
        """Its URL, without a user's name or a password."""
        if self.path:
            return f"redis+socket://{self.path}?virtual_host={self.db}"
        scheme = "redis" if self.tls is None else "rediss"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{scheme}://{host}:{self.port}/{self.db}"

    def _place(self) -> tuple[object, ...]:
        if self.path:
            return (self.path, self.db)
        host = "localhost" if self.host == "127.0.0.1" else self.host
        return (host, self.port, self.db)

    def options(self, timeout: float | None = None) -> dict[str, Any]:
        """Keyword arguments for redis-py's connection; *timeout* is in seconds."""
        timeout = timeout or TIMEOUT
        where: dict[str, Any] = {"path": self.path}
        if not self.path:
            where = {
                "host": self.host,
                "port": self.port,
                "socket_keepalive": True,
                "socket_connect_timeout": timeout,
                **(self.tls or {}),
            }
        return {
            **where,
            "db": self.db,
            "username": self.username,
            "password": self.password,
            "socket_timeout": timeout,
            "retry": Retry(NoBackoff(), 0),
            "retry_on_timeout": False,
            "protocol": 2,
            "decode_responses": False,
            "redis_connect_func": _greet,
        }

    def connection_class(self) -> Any:
        if self.path:
            return redis.UnixDomainSocketConnection
        return redis.SSLConnection if self.tls is not None else redis.Connection


def _greet(connection: Any) -> None:
    connection.on_connect()
    # Hosted servers and users with few rights may refuse it, and redis-py would give up for that.
    with suppress(redis.ResponseError):
        connection.send_command("CLIENT", "SETNAME", NAME, check_health=False)
        connection.read_response()
