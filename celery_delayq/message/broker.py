"""What the app's broker is, without talking to it."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kombu import Connection
from kombu.transport import redis as kombu_redis
from kombu.utils.url import url_to_parts

from ..errors import InvalidSetting
from ..settings import without_secrets
from ..store import Endpoint

_REDIS = ("redis", "rediss")
_SOCKET = "socket://"
VISIBILITY_TIMEOUT = 3600.0  # seconds; kombu's, where nothing is said
_SENTINEL = "Redis Sentinel is not supported as the store yet"
_REQUIREMENTS = {
    name: requirement
    for requirement in ssl.VerifyMode
    for name in (requirement, requirement.name, requirement.name.removeprefix("CERT_").lower())
}


@dataclass(frozen=True)
class Broker:
    """The app's broker.

    Attributes:
        endpoint: Its Redis, if it is one.
        options: Its transport options.
        failover: Whether there are others to turn to.
        kind: Its transport, virtual host and prefix of keys: what no two brokers of one store may
            differ in.
        hosts: Where it is.
        is_sentinel: Whether it is a Redis that is found through Redis Sentinel.
        transport: What kombu calls such a broker: ``amqp``, ``redis``. Tracers show it.
    """

    endpoint: Endpoint | None
    options: Mapping[str, Any]
    failover: bool
    kind: str
    hosts: str
    transport: str
    is_sentinel: bool

    @property
    def visibility_timeout(self) -> float:
        """Seconds after which kombu delivers again what a Redis broker's consumer does not ack."""
        return float(self.options.get("visibility_timeout", VISIBILITY_TIMEOUT))

    @property
    def unacked(self) -> tuple[str, str]:
        """Where kombu keeps what a Redis broker's consumers have not acknowledged: hash, index."""
        prefix, channel = self.options.get("global_keyprefix", ""), kombu_redis.Channel
        names = ("unacked_key", "unacked_index_key")
        unacked, index = (self.options.get(name, getattr(channel, name)) for name in names)
        return f"{prefix}{unacked}", f"{prefix}{index}"

    @classmethod
    def of(cls, connection: Connection) -> Broker:
        options = connection.transport_options or {}
        try:
            endpoint = _endpoint(connection)
        except InvalidSetting:
            raise
        except ValueError:
            # kombu will say so when it connects; here it is not a Redis that tasks could wait in.
            endpoint = None
        return cls(
            endpoint,
            options,
            failover=len(connection.alt or ()) > 1,
            kind=_kind(connection, endpoint, options),
            hosts=_hosts(connection),
            # kombu has loaded the class to read the URL.
            transport=connection.get_transport_cls().driver_type,
            is_sentinel=connection.transport_cls == "sentinel",
        )


def store_endpoint(url: str | None, broker: Broker, name: str) -> Endpoint:
    """Where the store is: *url*, or else the broker; *name* is the setting's.

    Raises:
        InvalidSetting: neither is a Redis.
    """
    if url is None:
        if broker.endpoint is None:
            why = _SENTINEL if broker.is_sentinel else "the broker is not a Redis"
            raise InvalidSetting(name, None, f"a redis:// URL, because {why}")
        return broker.endpoint
    try:
        endpoint = _endpoint(Connection(url))
    except InvalidSetting:
        raise
    except (KeyError, TypeError, ValueError):
        endpoint = None  # also where a word for TLS is one that kombu does not know
    if endpoint is None:
        wanted = "a redis:// or rediss:// URL"
        if url.startswith("sentinel:"):
            wanted = f"{wanted}; {_SENTINEL}"
        raise InvalidSetting(name, without_secrets(url), wanted)
    return endpoint


def _kind(connection: Connection, endpoint: Endpoint | None, options: Mapping[str, Any]) -> str:
    if endpoint is None:
        # Some transports have several names, which no two processes need to share.
        transport = connection.get_transport_cls().driver_type
        return f"{transport}, virtual host {connection.virtual_host or '/'}"
    keys = options.get("global_keyprefix", "")
    return f"redis, database {endpoint.db}" + (f", keys {keys}*" if keys else "")


def _hosts(connection: Connection) -> str:
    # Without the logins of their URLs.
    urls = connection.alt or [connection.as_uri()]
    port = connection.get_transport_cls().default_port
    parts = map(url_to_parts, urls)
    return ", ".join(sorted({f"{one.hostname or ''}:{one.port or port}" for one in parts}))


def _endpoint(connection: Connection) -> Endpoint | None:
    if connection.transport_cls not in _REDIS:
        return None
    host = connection.hostname or "localhost"
    login = {"username": connection.userid, "password": connection.password}
    if host.startswith(_SOCKET):
        parts = url_to_parts(host)
        database = parts.query.get("virtual_host", "0")
        login = {"username": parts.username, "password": parts.password}
        return Endpoint(path="/" + parts.path.lstrip("/"), db=_database(database), **login)
    return Endpoint(
        host=host,
        port=connection.port or 6379,
        db=_database(connection.virtual_host),
        tls=_tls(connection),
        **login,
    )


def _tls(connection: Connection) -> dict[str, Any] | None:
    """What redis-py shall do about TLS; certificates and names are checked unless the app says no.

    Raises:
        InvalidSetting: the app says something that is neither.
    """
    if not connection.ssl and connection.transport_cls != "rediss":
        return None
    # kombu takes silence for "check no certificate". What the app said is what it was made with.
    said = connection._initial_params["ssl"]
    options = dict(said) if isinstance(said, Mapping) else {}
    word = options.get("ssl_cert_reqs", "required")
    requirement = ssl.CERT_NONE if word is None else _REQUIREMENTS.get(word)
    if requirement is None:
        raise InvalidSetting("ssl_cert_reqs", word, "none, optional or required")
    names = str(options.get("ssl_check_hostname", True)).lower() != "false"
    options["ssl_cert_reqs"] = requirement
    options["ssl_check_hostname"] = names and requirement is not ssl.CERT_NONE
    return options


def _database(path: str | int | None) -> int:
    number = int(str(path or "0").strip("/") or "0")
    if number < 0:
        raise ValueError(number)
    return number
