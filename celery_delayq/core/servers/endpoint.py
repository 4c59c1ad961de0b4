"""The address of a Redis, with its options and login.

    options --> checked, before redis-py gets them
    Credentials: a fresh login for each connection, from the user's provider
    Server -+- Endpoint:      a fixed address
            '- MovingMaster:  looked up, and may move; in contrib, for the leaves sentinel, cluster

This module sets redis-py's retries, timeouts, protocol and decoding. By default redis-py repeats a
command after a connection error (ten times in version 8), which turns one push into eleven; its
default timeouts and protocol differ between versions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from ..threads import spared

TLS = "ssl_"  # the beginning of each TLS option


def connection_refuses(options: Mapping[str, Any]) -> str:
    """Return why a TLS connection cannot be made with these options; empty if it can."""
    return _refusal(redis.SSLConnection, options)


def client_refuses(options: Mapping[str, Any]) -> str:
    """Return why a client for a sentinel cannot be made with these options; empty if it can."""
    return _refusal(redis.Redis, options)


def _refusal(kind: Any, options: Mapping[str, Any]) -> str:
    try:
        # This does not connect. A wrong value is an error at the line that reads it.
        with suppress(redis.RedisError):
            kind(**options)
    except TypeError as error:
        return str(error)
    return ""


class Credentials(redis.CredentialProvider):
    """Calls a credential provider, as redis-py has it.

    If it fails, the error only names it, as the text of its own error may contain secrets.

    Args:
        provider: An object whose ``get_credentials`` returns ``(username, password)`` or
            ``(password,)``.
    """

    def __init__(self, provider: Any) -> None:
        self._provider = provider

    @property
    def name(self) -> str:
        """The provider's class."""
        kind = type(self._provider)
        return f"{kind.__module__}.{kind.__qualname__}"

    def get_credentials(self) -> tuple[str, ...]:  # type: ignore[override]
        """Return the provider's current login.

        Raises:
            redis.exceptions.AuthenticationError: the provider failed, or returned no login.
        """
        login: Any = None
        why = ""
        try:
            login = spared(self._provider.get_credentials)()
        except Exception as error:
            why = f"failed: {type(error).__name__}"
        if not why and not _is_login(login):
            why = "returned neither (username, password) nor (password,)"
        if why:  # raised here, so that it does not refer to the provider's error
            raise redis.AuthenticationError(f"the credential provider {self.name} {why}")
        return tuple(login)


def _is_login(login: Any) -> bool:
    return (
        isinstance(login, (tuple, list))
        and len(login) in (1, 2)
        and all(isinstance(word, (str, bytes)) for word in login)
    )


Address = tuple[str, int]  # host and port

TIMEOUT = 5.0  # seconds for connecting, and for each answer, by default
NAME = "celery_delayq"  # the name of our connections in CLIENT LIST


class Server(ABC):
    """A Redis. What this class defines holds at a fixed address; a server that moves overrides it.

    Attributes:
        may_move: Whether the server can move to another address.
    """

    may_move = False

    @property
    @abstractmethod
    def url(self) -> str:
        """Its URL, without user name and password."""

    @property
    @abstractmethod
    def kind(self) -> str:
        """The facts about a broker in which processes that share a store must not differ."""

    @property
    @abstractmethod
    def place(self) -> tuple[object, ...]:
        """Equal for two that name the same database of the same server, as far as names show."""

    @property
    @abstractmethod
    def user(self) -> str:
        """The user name; empty if a credential provider has it."""

    @property
    @abstractmethod
    def node(self) -> Address | None:
        """The known address; ``None``: it must be looked up."""

    @abstractmethod
    def connection(self, timeout: float) -> Any:
        """Return a redis-py connection, which may be connected already.

        Args:
            timeout: Seconds for finding the server, and for each step of connecting.

        Raises:
            redis.exceptions.ConnectionError: the server cannot be found.
        """

    def at(self, slot: int) -> Server:
        """Return the server of a slot of a Redis Cluster; any other Redis serves them all."""
        return self

    def known(self) -> Server:
        """Return this server, or one of the same Cluster if only that one's address is known."""
        return self

    def same_database(self, other: Server) -> bool:
        """Whether both name the same database of the same server, as far as names show."""
        return self.place == other.place

    def find_master(self, until: float) -> None:
        """Look up the server's address, if it may have changed.

        Args:
            until: When the call ends, by the monotonic clock.
        """

    def close(self) -> None:
        """Close the connections of :meth:`find_master`; the next call opens new ones."""

    def is_current(self, connection: Any) -> bool:
        """Whether a connection is known to lead to the server still."""
        return True

    def is_replaced(self, connection: Any) -> bool:
        """Whether the server is known to have left a connection's address.

        Both are false while the address is unknown.
        """
        return False

    def is_shared(self, connection: Any) -> bool:
        """Whether a connection leads to a node of the same Cluster that serves other slots."""
        return False

    def wait(self, connection: Any, until: float) -> None:
        """Wait for an answer on a connection, while it leads to the server.

        Args:
            until: When to give up, by the monotonic clock.

        Raises:
            redis.exceptions.ConnectionError: the server has moved, or the connection is closed.
        """

    def lost(self, connection: Any) -> None:
        """Note that a connection broke, timed out, or turned out to lead to another server."""

    def refused(self, connection: Any, error: redis.ResponseError) -> None:
        """Note what a refusal says about the server's address."""

    def again_after(self, error: BaseException | None, turn: int) -> float | None:
        """Return whether a refused command, which did nothing, may be sent again.

        Args:
            error: The refusal.
            turn: How often it was resent already.

        Returns:
            Seconds to wait before that; ``None``: the refusal is final.
        """

    def herald(self) -> Listener | None:
        """Return the listener for a change of address, if the server can move."""
        return None


class Listener(ABC):
    """Listens for a change of address; used by one thread."""

    @property
    @abstractmethod
    def sockets(self) -> list[Any]:
        """The sockets that become readable when there is something to :meth:`hear`."""

    @abstractmethod
    def listen(self) -> None:
        """Subscribe, unless it is subscribed; takes a moment at most, and ignores failures."""

    @abstractmethod
    def hear(self) -> bool:
        """Read the announcements; return whether the server has moved."""

    @abstractmethod
    def close(self) -> None:
        """Stop listening."""


@dataclass(frozen=True)
class Endpoint(Server):
    """A Redis at a fixed address: host and port, or the path of its socket, and its login.

    ``scheme`` is how its user calls it, ``redis`` or ``valkey``; it is only shown.
    """

    host: str = "localhost"
    port: int = 6379
    db: int = 0
    path: str | None = None
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: Mapping[str, Any] | None = field(default=None, repr=False)
    credentials: Credentials | None = field(default=None, repr=False)
    scheme: str = field(default="redis", repr=False, compare=False)

    @property
    def node(self) -> Address:
        return (self.path, 0) if self.path else self.address

    @property
    def url(self) -> str:
        if self.path:
            return f"{self.scheme}+socket://{self.path}?virtual_host={self.db}"
        tls = "" if self.tls is None else "s"
        return f"{self.scheme}{tls}://{self.where}/{self.db}"

    @property
    def user(self) -> str:
        return "" if self.credentials else self.username or "default"

    @property
    def where(self) -> str:
        """Host and port, as in a URL."""
        return shown(self.host, self.port)

    @property
    def kind(self) -> str:
        return f"redis, database {self.db}"

    @property
    def place(self) -> tuple[object, ...]:
        return (self.path, self.db) if self.path else (*self.address, self.db)

    @property
    def address(self) -> Address:
        """Host and port; all names of the local machine become one."""
        return ("localhost" if self.host == "127.0.0.1" else self.host, self.port)

    def connection(self, timeout: float) -> Any:
        """Return a connection, not connected yet; each of its steps may take *timeout* seconds."""
        return self.connection_class()(**self.options(timeout))

    def options(self, timeout: float | None = None) -> dict[str, Any]:
        """Return the keyword arguments for redis-py's connection; *timeout* is in seconds."""
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
    # A hosted server may refuse it, or a user's rights; then redis-py would give up.
    with suppress(redis.ResponseError):
        connection.send_command("CLIENT", "SETNAME", NAME, check_health=False)
        connection.read_response()


def shown(host: str, port: int) -> str:
    """Return an address as in a URL."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
