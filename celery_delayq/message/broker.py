"""What the app's broker is, without talking to it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kombu import Connection
from kombu.utils.url import url_to_parts

from ..errors import InvalidSetting
from ..leaves import leaf
from ..servers.endpoint import Endpoint, Server
from ..settings import without_secrets
from .connection_options import check_words_of_store, login_of, tls_of

_REDIS = ("redis", "rediss")
_SOCKET = "socket://"
_CLUSTER = re.compile(r"\s*rediss?\+cluster://")
VISIBILITY_TIMEOUT = 3600.0  # seconds; kombu's, where nothing is said
SENTINEL = "sentinel"
_WANTED = "a redis://, rediss://, redis+socket://, redis+cluster:// or sentinel:// URL"
_TRANSPORT = "a URL of a transport that kombu has, such as redis://, redis+socket:// or amqp://"
_DATABASE = "a URL that names its database by a number, such as redis://host:6379/0"
_QUERY = "a URL whose query has only words that kombu reads, such as ssl_cert_reqs"
_REQUIREMENT = "a URL whose ssl_cert_reqs is none, optional or required"
_READABLE = "a URL whose port is a number, with the special characters of a password as %XX"
_NO_CLUSTER = (
    "a URL of a transport that kombu has: Celery's broker cannot be in a Redis Cluster; let "
    "delayq_url name the Cluster, and broker_url another broker"
)
_SEVERAL = "a redis:// URL, because broker_url lists several brokers, and tasks wait in one Redis"
_NO_OPTIONS = "None, as {} is None: how the broker is found is in broker_transport_options"


class Names(NamedTuple):
    """The settings that say where a Redis is: its URL, its options, what is said of TLS."""

    url: str
    options: str
    tls: str


_BROKER = Names("broker_url", "broker_transport_options", "broker_use_ssl")


@dataclass(frozen=True)
class Broker:
    """The app's broker.

    Attributes:
        endpoint: Its Redis, if it is one.
        options: Its transport options.
        failover: Whether there are others to turn to, which are no sentinels.
        kind: Its transport, virtual host and prefix of keys: what no two brokers of one store may
            differ in.
        hosts: Where it is.
        url: The same as a URL, or several, without users' names and passwords.
        transport: What kombu calls such a broker: ``amqp``, ``redis``. Tracers show it.
    """

    endpoint: Server | None
    options: Mapping[str, Any] = field(repr=False)
    failover: bool
    kind: str
    hosts: str
    url: str
    transport: str

    @property
    def visibility_timeout(self) -> float:
        """Seconds after which kombu delivers again what a Redis broker's consumer does not ack."""
        return float(self.options.get("visibility_timeout", VISIBILITY_TIMEOUT))

    @classmethod
    def of(cls, connect: Callable[[], Connection], url: Any) -> Broker:
        """The broker that a connection leads to.

        Args:
            connect: Makes a connection that is not open.
            url: What it is made of, as an error shall say.

        Raises:
            InvalidSetting: kombu cannot read it, or would ask other sentinels than those that are
                meant, or none; or it is a Redis Cluster.
        """
        if _CLUSTER.match(str(url)):
            raise InvalidSetting(_BROKER.url, without_secrets(url), _NO_CLUSTER)
        connection = _read(connect, url, _BROKER.url, _TRANSPORT)
        options = connection.transport_options or {}
        hosts = _hosts(connection)
        endpoint = _server(connection, options, _BROKER, url)
        return cls(
            endpoint,
            options,
            failover=_has_others(connection),
            kind=_kind(connection, endpoint, options),
            hosts=hosts,
            url=_url(connection, endpoint),
            # kombu has loaded the class to read the URL.
            transport=connection.get_transport_cls().driver_type,
        )


def store_endpoint(
    url: str | None,
    options: Mapping[str, Any] | None,
    broker: Broker,
    names: tuple[str, str],
    slots: Sequence[int],
) -> Server:
    """Where the store is: *url*, found with *options*, or else the broker.

    Args:
        names: The settings' of *url* and *options*.
        slots: Of a Redis Cluster, in which the store's keys are.

    Raises:
        InvalidSetting: neither is one Redis, a part of what it takes is missing, or nothing reads
            a part of what is said.
    """
    options = options or {}
    if url is None:
        if broker.failover:
            # Plain tasks go to the next one where the first is away; what waits there cannot.
            raise InvalidSetting(names[0], None, _SEVERAL)
        if broker.endpoint is None:
            why = "a redis:// URL, because the broker is not a Redis"
            raise InvalidSetting(names[0], None, why)
        if options:
            raise InvalidSetting(names[1], type(options).__name__, _NO_OPTIONS.format(names[0]))
        return broker.endpoint
    check_words_of_store(options, names[1])
    nodes = leaf("cluster").nodes_of(url) if _CLUSTER.match(url) else []
    each = nodes[:1] or [one.strip() for one in url.split(";")]
    tls = options.get("ssl", False)
    connection = _read(
        lambda: Connection(";".join(filter(None, each)), ssl=tls), url, names[0], _WANTED
    )
    is_of_url = connection._initial_params["ssl"] is not tls
    of_tls = names[0] if is_of_url else f"{names[1]}['ssl']"
    server = _server(connection, options, Names(*names, of_tls), url)
    if server is None or _has_others(connection) or not all(map(is_sentinel, connection.alt)):
        raise InvalidSetting(names[0], without_secrets(url), _WANTED)
    if nodes:
        server = leaf("cluster").owner_of(server, url, slots, options, names)
    return server


def _read(connect: Callable[[], Connection], url: Any, name: str, transport: str) -> Connection:
    """The connection that kombu makes of a URL.

    Args:
        connect: Makes it.
        url: What it is made of.
        name: The setting's.
        transport: What is expected where kombu does not know the transport.

    Raises:
        InvalidSetting: kombu cannot read it.
    """
    try:
        connection = connect()
        for other in urls_of(connection):
            url_to_parts(other)
    except KeyError as error:
        # The other word that kombu looks up is ssl_cert_reqs.
        is_transport = str(error.args[0]).startswith("No such transport")
        expected = transport if is_transport else _REQUIREMENT
    except TypeError:
        expected = _QUERY
    except ValueError:
        expected = _READABLE
    else:
        return connection
    # Raised here, where nothing holds that error, which has a part of the URL.
    raise InvalidSetting(name, without_secrets(url), expected)


def _kind(connection: Connection, endpoint: Server | None, options: Mapping[str, Any]) -> str:
    if endpoint is None:
        # Some transports have several names, which no two processes need to share.
        transport = connection.get_transport_cls().driver_type
        return f"{transport}, virtual host {connection.virtual_host or '/'}"
    keys = options.get("global_keyprefix", "")
    return endpoint.kind + (f", keys {keys}*" if keys else "")


def _hosts(connection: Connection) -> str:
    # Without the logins of their URLs.
    urls = urls_of(connection) or [connection.as_uri()]
    port = connection.get_transport_cls().default_port
    parts = [url_to_parts(url) for url in urls]
    return ", ".join(sorted({f"{one.hostname or ''}:{one.port or port}" for one in parts}))


def _url(connection: Connection, endpoint: Server | None) -> str:
    if endpoint is not None and not _has_others(connection):
        return endpoint.url
    urls = urls_of(connection) or [connection.as_uri()]
    return ";".join(str(without_secrets(url.strip())) for url in urls)


def urls_of(connection: Connection) -> list[str]:
    """The alternatives that kombu turns to, or asks, if there are some."""
    urls = [url for url in connection.alt or () if url.strip()]
    # Of a group it asks those of that scheme alone; others that have one are another broker's.
    is_group = connection.transport_cls == SENTINEL
    return [url for url in urls if "://" in url] if is_group else urls


def _has_others(connection: Connection) -> bool:
    if connection.transport_cls == SENTINEL:
        return not all(map(is_sentinel, urls_of(connection)))
    # An empty one as well: kombu turns to this machine then.
    return len(connection.alt or ()) > 1


def is_sentinel(url: str) -> bool:
    """Whether it is a sentinel's."""
    return bool(url_to_parts(url).scheme == SENTINEL)


def _server(
    connection: Connection, options: Mapping[str, Any], names: Names, url: Any
) -> Server | None:
    """The Redis that a connection of kombu's leads to, if it is one.

    Raises:
        InvalidSetting: its options leave out what it takes, or say what cannot be; or the *url*
            names no database.
    """
    try:
        if connection.transport_cls == SENTINEL:
            group: Server = leaf("sentinel").group_of(connection, options, names)
            return group
        is_redis = connection.transport_cls in _REDIS
        return _endpoint(connection, options, names) if is_redis else None
    except InvalidSetting:
        raise
    except ValueError:
        pass  # of _database; it has a part of the URL
    raise InvalidSetting(names.url, without_secrets(url), _DATABASE)


def _endpoint(connection: Connection, options: Mapping[str, Any], names: Names) -> Endpoint:
    host = connection.hostname or "localhost"
    if host.startswith(_SOCKET):
        parts = url_to_parts(host)
        database = parts.query.get("virtual_host", "0")
        provider = parts.query.get("credential_provider") or provider_of(connection, options)
        login = login_of(parts.username, parts.password, provider, names.options)
        return Endpoint(path="/" + parts.path.lstrip("/"), db=database_of(database), **login)
    provider = provider_of(connection, options)
    login = login_of(connection.userid, connection.password, provider, names.options)
    return Endpoint(
        host=host,
        port=connection.port or 6379,
        db=database_of(connection.virtual_host),
        tls=tls_of_redis(connection, names.tls),
        **login,
    )


def provider_of(connection: Connection, options: Mapping[str, Any]) -> Any:
    """What tells name and password anew for each connection, if that is said."""
    # kombu reads it from a URL's query, from 5.7 on; from its options it takes none.
    return getattr(connection, "credential_provider", None) or options.get("credential_provider")


def tls_of_redis(connection: Connection, name: str) -> dict[str, Any] | None:
    """What redis-py shall do about TLS; *name* is the setting's."""
    if not connection.ssl and connection.transport_cls != "rediss":
        return None
    # kombu takes silence for "check no certificate". What the app said is what it was made with.
    said = connection._initial_params["ssl"]
    return tls_of(said if isinstance(said, Mapping) else {}, name)


def database_of(path: str | int | None) -> int:
    """The number of a database, as a URL's path.

    Raises:
        ValueError: it is none.
    """
    number = int(str(path or "0").strip("/") or "0")
    if number < 0:
        raise ValueError(number)
    return number
