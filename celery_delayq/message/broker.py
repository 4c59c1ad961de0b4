"""What the app's broker is, without talking to it."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kombu import Connection
from kombu.transport import redis as kombu_redis
from kombu.utils.imports import symbol_by_name
from kombu.utils.url import url_to_parts

from ..errors import InvalidSetting
from ..servers import ASK, Credentials, Endpoint, SentinelGroup, Server
from ..settings import without_secrets

_REDIS = ("redis", "rediss")
_SOCKET = "socket://"
VISIBILITY_TIMEOUT = 3600.0  # seconds; kombu's, where nothing is said
SENTINEL = "sentinel"
SENTINEL_PORT = 26379
_WANTED = "a redis://, rediss:// or sentinel:// URL"
_PROVIDER = "a redis.CredentialProvider, its class, or the dotted name of that"
_MASTER = "the name of a master that the sentinels know, such as 'mymaster'"
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
        failover: Whether there are others to turn to, which are no sentinels.
        kind: Its transport, virtual host and prefix of keys: what no two brokers of one store may
            differ in.
        hosts: Where it is.
        transport: What kombu calls such a broker: ``amqp``, ``redis``. Tracers show it.
    """

    endpoint: Server | None
    options: Mapping[str, Any]
    failover: bool
    kind: str
    hosts: str
    transport: str

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
            endpoint = _server(connection, options, "broker_transport_options")
        except InvalidSetting:
            raise
        except ValueError:
            # kombu will say so when it connects; here it is not a Redis that tasks could wait in.
            endpoint = None
        return cls(
            endpoint,
            options,
            failover=_has_others(connection),
            kind=_kind(connection, endpoint, options),
            hosts=_hosts(connection),
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
        InvalidSetting: neither is a Redis, or a part of what it takes is missing.
    """
    if url is None:
        if broker.endpoint is None:
            why = "a redis:// URL, because the broker is not a Redis"
            raise InvalidSetting(names[0], None, why)
        return broker.endpoint
    options = options or {}
    try:
        connection = Connection(url, ssl=options.get("ssl", False))
        server = _server(connection, options, names[1])
    except InvalidSetting:
        raise
    except (KeyError, TypeError, ValueError):
        server = None  # also where a word for TLS is one that kombu does not know
    if server is None or _has_others(connection):
        raise InvalidSetting(names[0], without_secrets(url), _WANTED)
    return server


def _kind(connection: Connection, endpoint: Server | None, options: Mapping[str, Any]) -> str:
    if endpoint is None:
        # Some transports have several names, which no two processes need to share.
        transport = connection.get_transport_cls().driver_type
        return f"{transport}, virtual host {connection.virtual_host or '/'}"
    keys = options.get("global_keyprefix", "")
    return endpoint.kind + (f", keys {keys}*" if keys else "")


def _hosts(connection: Connection) -> str:
    # Without the logins of their URLs.
    urls = connection.alt or [connection.as_uri()]
    port = connection.get_transport_cls().default_port
    parts = map(url_to_parts, urls)
    return ", ".join(sorted({f"{one.hostname or ''}:{one.port or port}" for one in parts}))


def _urls(connection: Connection) -> list[str]:
    return list(connection.alt or ())


def _has_others(connection: Connection) -> bool:
    urls = _urls(connection)
    is_group = connection.transport_cls == SENTINEL
    return len(urls) > 1 and not (is_group and all(map(_is_sentinel, urls)))


def _is_sentinel(url: str) -> bool:
    return url.startswith(f"{SENTINEL}://")


def _server(connection: Connection, options: Mapping[str, Any], name: str) -> Server | None:
    """The Redis that a connection of kombu's leads to, if it is one.

    Raises:
        InvalidSetting: its options, of that name, leave out what it takes.
    """
    if connection.transport_cls == SENTINEL:
        return _group(connection, options, name)
    is_redis = connection.transport_cls in _REDIS
    return _endpoint(connection, options, name) if is_redis else None


def _endpoint(connection: Connection, options: Mapping[str, Any], name: str) -> Endpoint:
    host = connection.hostname or "localhost"
    if host.startswith(_SOCKET):
        parts = url_to_parts(host)
        database = parts.query.get("virtual_host", "0")
        provider = parts.query.get("credential_provider") or _provider(connection, options)
        login = _login(parts.username, parts.password, provider, name)
        return Endpoint(path="/" + parts.path.lstrip("/"), db=_database(database), **login)
    provider = _provider(connection, options)
    login = _login(connection.userid, connection.password, provider, name)
    return Endpoint(
        host=host,
        port=connection.port or 6379,
        db=_database(connection.virtual_host),
        tls=_tls(connection),
        **login,
    )


def _group(connection: Connection, options: Mapping[str, Any], name: str) -> SentinelGroup:
    """The master that sentinels name.

    As with kombu, its database, its login and its TLS are what the first URL and the options of
    the connection say; of the other URLs only host and port count. What sentinels want is in
    ``sentinel_kwargs``.
    """
    master = options.get("master_name")
    if not master or not isinstance(master, str):
        raise InvalidSetting(f"{name}['master_name']", master, _MASTER)
    asking = options.get("sentinel_kwargs") or {}
    if not isinstance(asking, Mapping):
        raise InvalidSetting(f"{name}['sentinel_kwargs']", type(asking).__name__, "a mapping")
    parts = [url_to_parts(url) for url in _urls(connection)]
    places = [(one.hostname, one.port) for one in parts] or [(connection.hostname, connection.port)]
    login = _login(
        asking.get("username"),
        asking.get("password"),
        asking.get("credential_provider"),
        f"{name}['sentinel_kwargs']",
    )
    tls = _tls_options(asking) if asking.get("ssl") else None
    sentinels = [
        Endpoint(host=host or "localhost", port=port or SENTINEL_PORT, tls=tls, **login)
        for host, port in dict.fromkeys(places)
    ]
    limits = [asking.get("socket_timeout"), asking.get("socket_connect_timeout")]
    return SentinelGroup(
        master,
        tuple(sentinels),
        Endpoint(
            db=_database(connection.virtual_host),
            tls=_tls(connection),
            **_login(connection.userid, connection.password, _provider(connection, options), name),
        ),
        ask=min((float(one) for one in limits if one), default=ASK),
        others=int(options.get("min_other_sentinels") or 0),
    )


def _provider(connection: Connection, options: Mapping[str, Any]) -> Any:
    # kombu reads it from a URL's query, from 5.7 on; from its options it takes none.
    return getattr(connection, "credential_provider", None) or options.get("credential_provider")


def _login(username: str | None, password: str | None, provider: Any, name: str) -> dict[str, Any]:
    if provider is not None:
        return {"credentials": credentials_of(provider, f"{name}['credential_provider']")}
    return {"username": username, "password": password}


def credentials_of(provider: Any, name: str) -> Credentials:
    """What asks a provider: an instance, its class, or the class's dotted name, as kombu takes it.

    Args:
        name: The setting's.

    Raises:
        InvalidSetting: it is none, or cannot be made.
    """
    said = provider if isinstance(provider, str) else f"of type {type(provider).__name__}"
    made, failure = None, ""
    try:
        found = symbol_by_name(provider) if isinstance(provider, str) else provider
        made = found() if isinstance(found, type) else found
    except Exception as error:
        failure = f"; making it raised {type(error).__name__}"
    if failure:  # raised here, where nothing holds that error: its text may be secret
        raise InvalidSetting(name, said, _PROVIDER + failure)
    if not callable(getattr(made, "get_credentials", None)):
        raise InvalidSetting(name, said, _PROVIDER)
    return Credentials(made)


def _tls(connection: Connection) -> dict[str, Any] | None:
    """What redis-py shall do about TLS; certificates and names are checked unless the app says no.

    Raises:
        InvalidSetting: the app says something that is neither.
    """
    if not connection.ssl and connection.transport_cls != "rediss":
        return None
    # kombu takes silence for "check no certificate". What the app said is what it was made with.
    said = connection._initial_params["ssl"]
    return _tls_options(said if isinstance(said, Mapping) else {})


def _tls_options(said: Mapping[str, Any]) -> dict[str, Any]:
    options = {name: value for name, value in said.items() if name.startswith("ssl_")}
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
