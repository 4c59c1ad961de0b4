"""The app's broker, and its abilities, without connecting to it.

``Broker`` is the app's; ``store_endpoint`` reads the store's address by the same rules. Options,
logins and TLS are checked; an unknown option is refused by name, without its value, which may be a
secret.

A script in the store can push a message to a queue's list, exactly once and directly, if store and
broker are one Redis. In a Cluster, the list must be in the store's slot as well: the broker's
``global_keyprefix`` begins with the store's hash tag. ``servers/risks.py`` proves it.

AMQP cannot carry every message. Celery 5.5 and later apply a delay of their own to an ``eta`` on
quorum queues. ``send_task`` has by then replaced exchange and routing key by those of a cascade of
delay queues: ``celery_delayed_27`` (with an optional prefix since kombu 5.7), and 28 binary digits
of the countdown before the routing key. A scheduled message must be routed as if it had no eta.
Only the app's router knew that route, so its last answer is noted:

    router.route ---> noted ---> send_task puts the cascade into that answer ---> undo

The routing key alone is not enough: queues of several exchanges may be bound with it.
"""

from __future__ import annotations

import difflib
import math
import re
import ssl
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from kombu import Connection
from kombu.utils.imports import symbol_by_name
from kombu.utils.url import url_to_parts

from ..errors import InvalidOption, InvalidSetting, UnknownSetting
from ..leaves import leaf
from ..servers.endpoint import (
    TLS,
    Credentials,
    Endpoint,
    Server,
    client_refuses,
    connection_refuses,
)
from ..settings import Settings
from ..text import without_secrets

SENTINEL = "sentinel"
ROUTE = ("exchange", "routing_key")
_VISIBILITY_TIMEOUT = {"redis": 3600.0, "sqs": 1800.0}  # seconds; kombu's defaults
_CONSUMER_TIMEOUT = 1800.0  # seconds; RabbitMQ's default, as a client cannot read its setting
_DEFAULT_HOST = "localhost"
_REDIS = ("redis", "rediss")
_SOCKET = "socket://"
_CLUSTER = re.compile(r"\s*(rediss?|valkeys?)\+cluster://")
_VALKEY = re.compile(r"\s*valkey(?=s?(\+\w+)?://)")

_OF_STORES = (
    "master_name",
    "sentinel_kwargs",
    "min_other_sentinels",
    "address_map",
    "credential_provider",
    "ssl",
)
_REQUIREMENTS = {
    name: requirement
    for requirement in ssl.VerifyMode
    for name in (requirement, requirement.name, requirement.name.removeprefix("CERT_").lower())
}
_HEADERS = "application_headers"
_EXCHANGE = "celery_delayed_27"
_PREFIXED = re.compile(rf"(.+_)?{_EXCHANGE}")
_DIGITS = re.compile(r"(?:[01]\.){28}")
_WHERE = ("queue", *ROUTE)

_WANTED = (
    "a redis://, rediss://, redis+socket://, redis+cluster://, valkey://, valkeys:// or "
    "sentinel:// URL"
)
_TRANSPORT = "a URL of a transport that kombu has, such as redis://, redis+socket:// or amqp://"
_DATABASE = "a URL that names its database by a number, such as redis://host:6379/0"
_QUERY = "a URL whose query has only words that kombu reads, such as ssl_cert_reqs"
_REQUIREMENT = "a URL whose ssl_cert_reqs is none, optional or required"
_READABLE = "a URL whose port is a number, with the special characters of a password as %XX"
_NO_CLUSTER = (
    "a URL of a transport that kombu has: Celery's broker cannot be in a Redis Cluster; let "
    "delayq_url name the Cluster, and broker_url another broker"
)
_NO_REDIS = "a redis:// URL, because the broker is not a Redis"
_OTHER_TRANSPORT = (
    "a redis:// or valkey:// URL, because the broker's transport is not kombu's own for Redis"
)
_SEVERAL = "a redis:// URL, because broker_url lists several brokers, and tasks wait in one Redis"
_NO_OPTIONS = "None, as {} is None: how the broker is found is in broker_transport_options"
_PROVIDER = "a redis.CredentialProvider, its class, or the dotted name of that"
_SSL = "true or false, or a mapping of redis-py's words for TLS, such as ssl_ca_certs"


class Names(NamedTuple):
    """The names of the settings with a Redis's URL, options and TLS."""

    url: str
    options: str
    tls: str


class HoldLimit(NamedTuple):
    """How long a broker lets a worker hold a message: the name of its setting, and seconds."""

    name: str
    seconds: float


_BROKER = Names("broker_url", "broker_transport_options", "broker_use_ssl")


@dataclass(frozen=True)
class Broker:
    """The app's broker.

    Attributes:
        endpoint: Its Redis, if it is a Redis.
        options: Its transport options.
        failover: Whether the URL names alternatives that are not sentinels.
        kind: Its transport, virtual host or database, and key prefix, which all processes of a
            store must share.
        hosts: Its addresses; behind Sentinel, with the master's name.
        url: The same as one or more URLs, without user names and passwords.
        transport: kombu's name for such a broker: ``amqp``, ``redis``. Tracers show it.
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
        """Seconds after which a message is redelivered that was not acknowledged (Redis, SQS)."""
        default = _VISIBILITY_TIMEOUT.get(self.transport, _VISIBILITY_TIMEOUT["redis"])
        return float(self.options.get("visibility_timeout", default))

    @property
    def hold_limit(self) -> HoldLimit | None:
        """How long this broker lets a worker hold a message; ``None`` if that is not known."""
        if self.transport == "redis" and self.endpoint is None:
            return None  # another package's transport for Redis, which has limits of its own
        if self.transport in _VISIBILITY_TIMEOUT:
            return HoldLimit("visibility_timeout", self.visibility_timeout)
        if self.transport == "amqp":
            return HoldLimit("consumer_timeout", _CONSUMER_TIMEOUT)
        return None

    def is_at(self, connection: Connection) -> bool:
        """Return whether a kombu connection, which is not opened, leads to this broker."""
        try:
            other = Broker.of(lambda: connection, connection.hostname)
        except InvalidSetting:
            return False
        # Of several brokers, it may have turned to one in another database.
        same = other.url == self.url if self.failover else other.kind == self.kind
        return same and other.hosts == self.hosts

    @classmethod
    def of(cls, connect: Callable[[], Connection], url: Any) -> Broker:
        """Return the broker of a kombu connection.

        Args:
            connect: Makes the connection, without opening it.
            url: Its URL, for errors.

        Raises:
            InvalidSetting: kombu cannot read the URL, or would query the wrong sentinels, or none;
                or it names a Redis Cluster.
        """
        if _CLUSTER.match(str(url)):
            raise InvalidSetting(_BROKER.url, without_secrets(url), _NO_CLUSTER)
        connection = _read(connect, url, _BROKER.url, _TRANSPORT)
        options = connection.transport_options or {}
        hosts = _hosts(connection)
        endpoint = _server(connection, options, _BROKER, url)
        if connection.transport_cls == SENTINEL:
            hosts = f"{hosts} (master {options['master_name']})"
        return cls(
            endpoint,
            options,
            failover=_has_others(connection),
            kind=_kind(connection, endpoint, options),
            hosts=hosts,
            url=_url(connection, endpoint),
            # kombu loaded the class to read the URL.
            transport=connection.get_transport_cls().driver_type,
        )


def store_endpoint(
    url: str | None,
    options: Mapping[str, Any] | None,
    broker: Broker,
    names: tuple[str, str],
    slot: int,
) -> Server:
    """Return the store's Redis: at *url* with *options*, or else the broker.

    Args:
        names: The names of the settings of *url* and *options*.
        slot: A slot of the store's keys in a Redis Cluster.

    Raises:
        InvalidSetting: neither is a single Redis, an option is missing, or nothing reads one of the
            options.
    """
    options = options or {}
    if url is None:
        if broker.failover:
            # If the first broker is down, plain tasks go to the next one; waiting tasks cannot.
            raise InvalidSetting(names[0], None, _SEVERAL)
        if broker.endpoint is None:
            is_redis = broker.transport == "redis"
            raise InvalidSetting(names[0], None, _OTHER_TRANSPORT if is_redis else _NO_REDIS)
        if options:
            raise InvalidSetting(names[1], type(options).__name__, _NO_OPTIONS.format(names[0]))
        return broker.endpoint
    _check_words_of_store(options, names[1])
    nodes = leaf("cluster").nodes_of(url) if _CLUSTER.match(url) else []
    # kombu knows no valkey://, unless a package adds a transport of its own for it.
    each = [_VALKEY.sub("redis", part.strip(), count=1) for part in nodes[:1] or url.split(";")]
    tls = options.get("ssl", False)
    connection = _read(
        lambda: Connection(";".join(filter(None, each)), ssl=tls), url, names[0], _WANTED
    )
    is_of_url = connection._initial_params["ssl"] is not tls
    of_tls = names[0] if is_of_url else f"{names[1]}['ssl']"
    server = _server(connection, options, Names(*names, of_tls), url)
    if server is None or _has_others(connection) or not all(map(is_sentinel, connection.alt)):
        raise InvalidSetting(names[0], without_secrets(url), _WANTED)
    if isinstance(server, Endpoint) and _VALKEY.match(url):
        server = replace(server, scheme="valkey")
    if nodes:
        server = leaf("cluster").owner_of(server, url, slot, options, names)
    return server


def _read(connect: Callable[[], Connection], url: Any, name: str, transport: str) -> Connection:
    """Return the connection that kombu makes from a URL.

    Args:
        connect: Makes it.
        url: The URL.
        name: The setting's.
        transport: The expected value in the error, if kombu does not know the transport.

    Raises:
        InvalidSetting: kombu cannot read the URL.
    """
    try:
        connection = connect()
        for other in urls_of(connection):
            url_to_parts(other)
    except KeyError as error:
        # The only other option that kombu looks up is ssl_cert_reqs.
        is_transport = str(error.args[0]).startswith("No such transport")
        expected = transport if is_transport else _REQUIREMENT
    except TypeError:
        expected = _QUERY
    except ValueError:
        expected = _READABLE
    else:
        return connection
    # Raised here, so that it does not refer to kombu's error, which contains a part of the URL.
    raise InvalidSetting(name, without_secrets(url), expected)


def _kind(connection: Connection, endpoint: Server | None, options: Mapping[str, Any]) -> str:
    if endpoint is None:
        # Some transports have several names, and processes may use different ones.
        transport = connection.get_transport_cls().driver_type
        return f"{transport}, virtual host {connection.virtual_host or '/'}"
    keys = options.get("global_keyprefix", "")
    return endpoint.kind + (f", keys {keys}*" if keys else "")


def _hosts(connection: Connection) -> str:
    # Without the logins in their URLs.
    urls = urls_of(connection) or [_uri(connection)]
    port = connection.get_transport_cls().default_port
    parts = [url_to_parts(url) for url in urls]
    return ", ".join(sorted({f"{part.hostname or ''}:{part.port or port}" for part in parts}))


def _url(connection: Connection, endpoint: Server | None) -> str:
    if endpoint is not None and not _has_others(connection):
        return endpoint.url
    urls = urls_of(connection) or [_uri(connection)]
    return ";".join(str(without_secrets(url.strip())) for url in urls)


def _uri(connection: Connection) -> str:
    """Return the URL of a connection, with kombu's default host and without kombu's warning."""
    host = connection.hostname
    connection.hostname = host or _DEFAULT_HOST
    try:
        url: str = connection.as_uri()
    finally:
        connection.hostname = host
    scheme, separator, rest = url.partition("://")
    if "." in scheme:  # broker_transport names a class, as "package.module:Transport"
        scheme = connection.get_transport_cls().driver_type
    return f"{scheme}{separator}{rest}"


def urls_of(connection: Connection) -> list[str]:
    """Return the alternative URLs that kombu tries, or queries; empty if there are none."""
    urls = [url for url in connection.alt or () if url.strip()]
    # kombu queries only the URLs with this scheme as sentinels; a URL with another is another
    # broker.
    is_group = connection.transport_cls == SENTINEL
    return [url for url in urls if "://" in url] if is_group else urls


def _has_others(connection: Connection) -> bool:
    if connection.transport_cls == SENTINEL:
        return not all(map(is_sentinel, urls_of(connection)))
    # An empty one counts too: then kombu connects to the local machine.
    return len(connection.alt or ()) > 1


def is_sentinel(url: str) -> bool:
    """Whether a URL names a sentinel."""
    return bool(url_to_parts(url).scheme == SENTINEL)


def _server(
    connection: Connection, options: Mapping[str, Any], names: Names, url: Any
) -> Server | None:
    """Return the Redis of a kombu connection, if it leads to one.

    Raises:
        InvalidSetting: an option is missing or invalid, or the *url* names no database.
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
        pass  # from _database; its error contains a part of the URL
    raise InvalidSetting(names.url, without_secrets(url), _DATABASE)


def _endpoint(connection: Connection, options: Mapping[str, Any], names: Names) -> Endpoint:
    host = connection.hostname or _DEFAULT_HOST
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
    """Return the credential provider, if one is set."""
    # kombu 5.7 and later reads it from a URL's query, never from its options.
    return getattr(connection, "credential_provider", None) or options.get("credential_provider")


def tls_of_redis(connection: Connection, name: str) -> dict[str, Any] | None:
    """Return the TLS options for redis-py; *name* is the setting's."""
    if not connection.ssl and connection.transport_cls != "rediss":
        return None
    # By default kombu checks no certificate, so the app's own options are read here.
    ssl = connection._initial_params["ssl"]
    return tls_of(ssl if isinstance(ssl, Mapping) else {}, name)


def database_of(path: str | int | None) -> int:
    """Return the number of a database from a URL's path.

    Raises:
        ValueError: the path is no such number.
    """
    number = int(str(path or "0").strip("/") or "0")
    if number < 0:
        raise ValueError(number)
    return number


def _check_words_of_store(options: Mapping[str, Any], name: str) -> None:
    """Refuse options of the store that nothing reads: a misspelt one may be its login.

    Raises:
        UnknownSetting: the setting of that *name* has no such option; the error suggests the
            nearest.
        InvalidSetting: redis-py does not accept an option for TLS or sentinels.
    """
    for word in options:
        if word not in _OF_STORES:
            (nearest,) = difflib.get_close_matches(str(word), _OF_STORES, n=1, cutoff=0)
            raise UnknownSetting(f"{name}[{word!r}]", f"{name}[{nearest!r}]")
    tls = options.get("ssl")
    if not (tls is None or isinstance(tls, (bool, Mapping))):
        raise InvalidSetting(f"{name}['ssl']", type(tls).__name__, _SSL)
    if isinstance(tls, Mapping):
        _refuse(tls, connection_refuses(tls), f"{name}['ssl']")
    asking = options.get("sentinel_kwargs")
    if isinstance(asking, Mapping):
        _refuse(asking, client_refuses(asking), f"{name}['sentinel_kwargs']")


def login_of(username: Any, password: Any, provider: Any, name: str) -> dict[str, Any]:
    """Return the login for an :class:`Endpoint`; *name* is the setting that has the provider."""
    if provider is not None:
        return {"credentials": credentials_of(provider, f"{name}['credential_provider']")}
    return {"username": username, "password": password}


def credentials_of(provider: Any, name: str) -> Credentials:
    """Return the credentials of a provider, given as an instance, its class or the class's path.

    Args:
        name: The name of the setting.

    Raises:
        InvalidSetting: it is no provider, or cannot be made.
    """
    shown = provider if isinstance(provider, str) else f"of type {type(provider).__name__}"
    made, failure = None, ""
    try:
        found = symbol_by_name(provider) if isinstance(provider, str) else provider
        made = found() if isinstance(found, type) else found
    except Exception as error:
        failure = f"; making it raised {type(error).__name__}"
    if failure:  # raised here, so that it does not refer to that error, whose text may be secret
        raise InvalidSetting(name, shown, _PROVIDER + failure)
    if not callable(getattr(made, "get_credentials", None)):
        raise InvalidSetting(name, shown, _PROVIDER)
    return Credentials(made)


def tls_of(tls: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the TLS options for redis-py; it checks certificates and names unless the app says no.

    Args:
        tls: Options for redis-py; those that are not about TLS are left out.
        name: The setting that has them.

    Raises:
        InvalidSetting: redis-py has no such option, or the options for certificates are invalid.
    """
    options = {word: value for word, value in tls.items() if word.startswith(TLS)}
    _refuse(options, connection_refuses(options), name)
    word = options.get("ssl_cert_reqs", "required")
    is_word = isinstance(word, (str, int))
    requirement = ssl.CERT_NONE if word is None else _REQUIREMENTS.get(word) if is_word else None
    if requirement is None:
        why = "none, optional or required"
        raise InvalidSetting(f"{name}['ssl_cert_reqs']", word, why)
    names = str(options.get("ssl_check_hostname", True)).lower() != "false"
    options["ssl_cert_reqs"] = requirement
    options["ssl_check_hostname"] = names and requirement is not ssl.CERT_NONE
    return options


def _refuse(tls: Mapping[str, Any], why: str, name: str) -> None:
    if why:
        raise InvalidSetting(name, sorted(map(str, tls)), f"redis-py's options; its error: {why}")


def number_of(value: Any) -> float:
    """Return a number, also from text; NaN if it is none."""
    if isinstance(value, bool):
        return math.nan
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def is_direct(broker: Broker, store: Server, settings: Settings) -> bool:
    """Whether a script can push a message directly into the broker's lists."""
    if broker.endpoint is None or broker.failover:
        return False
    return broker.endpoint.same_database(store) or is_tagged(broker, settings)


def is_tagged(broker: Broker, settings: Settings) -> bool:
    """Whether the broker's keys have the hash tag of the store, and are so in its one slot."""
    prefix = str(broker.options.get("global_keyprefix", ""))
    return settings.shards == 1 and prefix.startswith(f"{{{settings.prefix}:0}}")


def beside(broker: Broker, store: Server) -> Server | None:
    """Return the broker's Redis, if its name does not tell whether it is the store's."""
    if broker.endpoint is None or broker.failover or broker.endpoint.same_database(store):
        return None
    return broker.endpoint


def check_encodable(message: Mapping[str, Any]) -> None:
    """Refuse a message that AMQP cannot carry, as publishing it would.

    Raises:
        InvalidOption: a property or a header has no form in AMQP.
    """
    # Only apps that publish by AMQP come here, so py-amqp is there.
    from amqp.basic_message import Message
    from amqp.serialization import dumps

    values = {**message["properties"], _HEADERS: message["headers"]}
    for name, kind in Message.PROPERTIES:
        value = values.get(name)
        if value is not None:
            try:
                dumps(kind, [value])
            except Exception as error:
                option = "headers" if name == _HEADERS else name
                raise InvalidOption(option, value, f"what AMQP can carry ({error})") from None


# The router's last answer, and a copy of its route from before any change.
_noted: ContextVar[tuple[dict[str, Any], dict[str, Any]] | None] = ContextVar(
    "celery_delayq_routed", default=None
)


def noting(router: Any) -> Any:
    """Return *router*, made to note its last answer."""
    plain = router.route

    def route(*args: Any, **options: Any) -> Any:
        routed = plain(*args, **options)
        _noted.set((routed, {name: routed[name] for name in _WHERE if name in routed}))
        return routed

    router.route = route
    return router


def is_delayed(options: Mapping[str, Any]) -> bool:
    """Whether exchange and routing key are those of the cascade."""
    exchange, routing_key = (options.get(name) for name in ROUTE)
    is_key = isinstance(routing_key, str) and _DIGITS.match(routing_key)
    return bool(is_key and _PREFIXED.fullmatch(getattr(exchange, "name", exchange) or ""))


def undo(options: dict[str, Any], amqp: Any) -> None:
    """Restore the exchange and routing key of *options*; leave all else as it is."""
    if not is_delayed(options):
        return
    routed, where = _noted.get() or ({}, {})
    # The key is made for this call only, so the same object means the same answer.
    if routed.get("routing_key") is options["routing_key"]:
        for name in _WHERE:
            options.pop(name, None)
        options.update(where)
        return
    # Another router's answer. A queue bound with this key leads to the same exchange or a like one.
    routing_key = _DIGITS.sub("", options["routing_key"], count=1)
    options["routing_key"] = routing_key
    options["exchange"] = None
    matching = [queue for queue in amqp.queues.values() if queue.routing_key == routing_key]
    options["queue"] = matching[0] if matching else amqp.default_queue
