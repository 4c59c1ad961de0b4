"""What the app's broker is, without talking to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kombu import Connection
from kombu.utils.url import url_to_parts

from ..errors import InvalidSetting
from ..servers import ASK, TLS, Endpoint, SentinelGroup, Server
from ..settings import without_secrets
from .options import check_words_of_store, login_of, others_of, seconds_of, tls_of

_REDIS = ("redis", "rediss")
_SOCKET = "socket://"
VISIBILITY_TIMEOUT = 3600.0  # seconds; kombu's, where nothing is said
SENTINEL = "sentinel"
SENTINEL_PORT = 26379
_WANTED = "a redis://, rediss://, redis+socket:// or sentinel:// URL"
_TRANSPORT = "a URL of a transport that kombu has, such as redis://, redis+socket:// or amqp://"
_DATABASE = "a URL that names its database by a number, such as redis://host:6379/0"
_QUERY = "a URL whose query has only words that kombu reads, such as ssl_cert_reqs"
_REQUIREMENT = "a URL whose ssl_cert_reqs is none, optional or required"
_READABLE = "a URL whose port is a number, with the special characters of a password as %XX"
_MASTER = "the name of a master that the sentinels know, such as 'mymaster'"
_NO_BLANK = "URLs parted by ';' alone: of one behind a blank, kombu reads no host"
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
                meant, or none.
        """
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
) -> Server:
    """Where the store is: *url*, found with *options*, or else the broker.

    Args:
        names: The settings' of *url* and *options*.

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
    each = [one.strip() for one in url.split(";")]
    tls = options.get("ssl", False)
    connection = _read(
        lambda: Connection(";".join(filter(None, each)), ssl=tls), url, names[0], _WANTED
    )
    is_of_url = connection._initial_params["ssl"] is not tls
    of_tls = names[0] if is_of_url else f"{names[1]}['ssl']"
    server = _server(connection, options, Names(*names, of_tls), url)
    if server is None or _has_others(connection) or not all(map(_is_sentinel, connection.alt)):
        raise InvalidSetting(names[0], without_secrets(url), _WANTED)
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
        for other in _urls(connection):
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
    urls = _urls(connection) or [connection.as_uri()]
    port = connection.get_transport_cls().default_port
    parts = [url_to_parts(url) for url in urls]
    return ", ".join(sorted({f"{one.hostname or ''}:{one.port or port}" for one in parts}))


def _url(connection: Connection, endpoint: Server | None) -> str:
    if endpoint is not None and not _has_others(connection):
        return endpoint.url
    urls = _urls(connection) or [connection.as_uri()]
    return ";".join(str(without_secrets(url.strip())) for url in urls)


def _urls(connection: Connection) -> list[str]:
    """The alternatives that kombu turns to, or asks, if there are some."""
    urls = [url for url in connection.alt or () if url.strip()]
    # Of a group it asks those of that scheme alone; others that have one are another broker's.
    is_group = connection.transport_cls == SENTINEL
    return [url for url in urls if "://" in url] if is_group else urls


def _has_others(connection: Connection) -> bool:
    if connection.transport_cls == SENTINEL:
        return not all(map(_is_sentinel, _urls(connection)))
    # An empty one as well: kombu turns to this machine then.
    return len(connection.alt or ()) > 1


def _is_sentinel(url: str) -> bool:
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
            return _group(connection, options, names)
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
        provider = parts.query.get("credential_provider") or _provider(connection, options)
        login = login_of(parts.username, parts.password, provider, names.options)
        return Endpoint(path="/" + parts.path.lstrip("/"), db=_database(database), **login)
    provider = _provider(connection, options)
    login = login_of(connection.userid, connection.password, provider, names.options)
    return Endpoint(
        host=host,
        port=connection.port or 6379,
        db=_database(connection.virtual_host),
        tls=_tls(connection, names.tls),
        **login,
    )


def _group(connection: Connection, options: Mapping[str, Any], names: Names) -> SentinelGroup:
    """The master that sentinels name.

    As with kombu, its database, its login and its TLS are what the first URL and the options of
    the connection say; of the other URLs only host and port count. What sentinels want is in
    ``sentinel_kwargs``.
    """
    name = names.options
    master = options.get("master_name")
    if not master or not isinstance(master, str):
        raise InvalidSetting(f"{name}['master_name']", master, _MASTER)
    asking = options.get("sentinel_kwargs") or {}
    of_asking = f"{name}['sentinel_kwargs']"
    if not isinstance(asking, Mapping):
        raise InvalidSetting(of_asking, type(asking).__name__, "a mapping")
    provider = asking.get("credential_provider")
    login = login_of(asking.get("username"), asking.get("password"), provider, of_asking)
    about_tls = {word: said for word, said in asking.items() if str(word).startswith(TLS)}
    tls = tls_of(about_tls, of_asking) if asking.get("ssl") else None
    sentinels = [
        Endpoint(host=host or "localhost", port=port or SENTINEL_PORT, tls=tls, **login)
        for host, port in _places(connection, names.url)
    ]
    words = ("socket_timeout", "socket_connect_timeout")
    limits = [seconds_of(asking, word, of_asking) for word in words]
    provider = _provider(connection, options)
    return SentinelGroup(
        master,
        tuple(sentinels),
        Endpoint(
            db=_database(connection.virtual_host),
            tls=_tls(connection, names.tls),
            **login_of(connection.userid, connection.password, provider, name),
        ),
        ask=min((one for one in limits if one), default=ASK),
        others=others_of(options, name),
    )


def _places(connection: Connection, name: str) -> Iterable[tuple[str | None, int | None]]:
    """Host and port of each sentinel, once; *name* is the setting's."""
    urls = _urls(connection)
    if any(url[0].isspace() for url in urls):
        raise InvalidSetting(name, without_secrets(";".join(urls)), _NO_BLANK)
    parts = [url_to_parts(url) for url in urls if _is_sentinel(url)]
    places = [(one.hostname, one.port) for one in parts] or [(connection.hostname, connection.port)]
    return dict.fromkeys(places)


def _provider(connection: Connection, options: Mapping[str, Any]) -> Any:
    # kombu reads it from a URL's query, from 5.7 on; from its options it takes none.
    return getattr(connection, "credential_provider", None) or options.get("credential_provider")


def _tls(connection: Connection, name: str) -> dict[str, Any] | None:
    """What redis-py shall do about TLS; *name* is the setting's."""
    if not connection.ssl and connection.transport_cls != "rediss":
        return None
    # kombu takes silence for "check no certificate". What the app said is what it was made with.
    said = connection._initial_params["ssl"]
    return tls_of(said if isinstance(said, Mapping) else {}, name)


def _database(path: str | int | None) -> int:
    number = int(str(path or "0").strip("/") or "0")
    if number < 0:
        raise ValueError(number)
    return number
