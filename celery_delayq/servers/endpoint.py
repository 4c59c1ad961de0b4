"""Where a Redis is, and how to be let in.

``Server`` is what connections know of it: one address (``Endpoint``), or a master that is found and
may move (``moving.py``, for the leaves ``sentinel`` and ``cluster``).

Every setting of redis-py that matters is owned here. It repeats commands by itself after a
connection error (ten times in version 8), which turns one push into eleven, and it changed its
time-outs and protocol between versions. So retries, time-outs, protocol and decoding are set.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from .credentials import Credentials

Address = tuple[str, int]  # host and port

TIMEOUT = 5.0  # seconds: for connecting, and for any answer, where nothing else is said
NAME = "celery_delayq"  # of our connections, as CLIENT LIST shows it


class Server(Protocol):
    """A Redis, however it is found."""

    @property
    def url(self) -> str:
        """Where it is, without a user's name or a password."""

    @property
    def kind(self) -> str:
        """What processes that share a store must not differ in, where it is their broker."""

    @property
    def place(self) -> tuple[object, ...]:
        """Of two that name the same database of the same server, as far as names tell, equal."""

    @property
    def user(self) -> str:
        """The name that it knows one by; empty where a provider of credentials says it."""

    @property
    def may_move(self) -> bool:
        """Whether another address may take over."""

    def same_database(self, other: Server) -> bool:
        """Whether both name the same database of the same server, as far as names tell."""

    def connection(self, timeout: float) -> Any:
        """A connection of redis-py, which may be connected already.

        Args:
            timeout: Seconds that finding it takes at most, and each of its steps.

        Raises:
            redis.exceptions.ConnectionError: it is not to be found.
        """

    def find_master(self, until: float) -> None:
        """Take note of another address that has taken over, as far as that was said.

        Args:
            until: When the call ends that it is for, by the monotonic clock.
        """

    def close(self) -> None:
        """Close what :meth:`find_master` has opened; the next one opens it anew."""

    def forget(self) -> None:
        """In a forked child: leave what belongs to the parent."""

    def is_current(self, connection: Any) -> bool:
        """Whether a connection is known to lead there still."""

    def is_replaced(self, connection: Any) -> bool:
        """Whether another address is known to have taken over from a connection's.

        Both are false while it is not known which address it is.
        """

    def wait(self, connection: Any, until: float) -> None:
        """Wait for an answer that a connection is to bring, as long as it leads there.

        Args:
            until: When to give up, by the monotonic clock.

        Raises:
            redis.exceptions.ConnectionError: another has taken over, or it is closed.
        """

    def lost(self, connection: Any) -> None:
        """A connection broke, timed out, or told that it leads to another server."""

    def refused(self, connection: Any, error: redis.ResponseError) -> None:
        """Take note of what a refusal says about which address it is."""

    def again_after(self, error: BaseException | None, turn: int) -> float | None:
        """Whether a command that was refused may be sent again, as nothing was done.

        Args:
            error: The refusal.
            turn: How often it was sent again already.

        Returns:
            Seconds to wait before that; ``None``: it is refused for good.
        """

    def herald(self) -> Listener | None:
        """What hears of it when another address takes over, if that can be."""


class Listener(Protocol):
    """Hears when another address takes over; one thread's."""

    @property
    def sockets(self) -> list[Any]:
        """What becomes readable when there is something to :meth:`hear`."""

    def listen(self) -> None:
        """Subscribe, unless that is done; takes a moment at most, and says nothing of failures."""

    def hear(self) -> bool:
        """Read what is there; whether another address has taken over."""

    def close(self) -> None:
        """Listen no more."""


@dataclass(frozen=True)
class Endpoint:
    """Where a Redis is: host and port, or the path of its socket, and how to be let in."""

    host: str = "localhost"
    port: int = 6379
    db: int = 0
    path: str | None = None
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: Mapping[str, Any] | None = field(default=None, repr=False)
    credentials: Credentials | None = field(default=None, repr=False)

    may_move = False

    def same_database(self, other: Server) -> bool:
        """Whether both name the same database of the same server, as far as names tell."""
        return self.place == other.place

    @property
    def url(self) -> str:
        """Its URL, without a user's name or a password."""
        if self.path:
            return f"redis+socket://{self.path}?virtual_host={self.db}"
        scheme = "redis" if self.tls is None else "rediss"
        return f"{scheme}://{self.where}/{self.db}"

    @property
    def user(self) -> str:
        """The name that it knows one by; empty where a provider of credentials says it."""
        return "" if self.credentials else self.username or "default"

    @property
    def where(self) -> str:
        """Host and port, as a URL has them."""
        return shown(self.host, self.port)

    @property
    def kind(self) -> str:
        """What processes that share a store must not differ in, where it is their broker."""
        return f"redis, database {self.db}"

    @property
    def place(self) -> tuple[object, ...]:
        """Equal for two that name the same database of the same server, as far as names tell."""
        return (self.path, self.db) if self.path else (*self.address, self.db)

    @property
    def address(self) -> Address:
        """Host and port; a machine's own address has one name."""
        return ("localhost" if self.host == "127.0.0.1" else self.host, self.port)

    def connection(self, timeout: float) -> Any:
        """A connection that is not connected yet; each of its steps takes at most *timeout* s."""
        return self.connection_class()(**self.options(timeout))

    def find_master(self, until: float) -> None:
        """It is where it was."""

    def close(self) -> None:
        """Nothing is open."""

    def forget(self) -> None:
        """Nothing is kept of it."""

    def is_current(self, connection: Any) -> bool:  # noqa: ARG002
        """It is where it was."""
        return True

    def is_replaced(self, connection: Any) -> bool:  # noqa: ARG002
        """It is where it was."""
        return False

    def wait(self, connection: Any, until: float) -> None:
        """Whoever reads waits."""

    def lost(self, connection: Any) -> None:
        """It is where it was."""

    def refused(self, connection: Any, error: redis.ResponseError) -> None:
        """It is where it was."""

    def again_after(self, error: BaseException | None, turn: int) -> None:
        """No other address would take it."""

    def herald(self) -> None:
        """It stays where it is."""

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
            **self._login(),
            "socket_timeout": timeout,
            "retry": Retry(NoBackoff(), 0),
            "retry_on_timeout": False,
            "protocol": 2,
            "decode_responses": False,
            "redis_connect_func": _greet,
        }

    def _login(self) -> dict[str, Any]:
        if self.credentials is not None:
            return {"credential_provider": self.credentials}
        return {"username": self.username, "password": self.password}

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


def shown(host: str, port: int) -> str:
    """An address as a URL has it."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
