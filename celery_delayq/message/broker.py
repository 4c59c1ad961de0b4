"""What the app's broker is, without talking to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from kombu import Connection
from kombu.utils.url import url_to_parts

from ..errors import InvalidSetting
from ..store import Endpoint

_REDIS = ("redis", "rediss")
_SOCKET = "socket://"


@dataclass(frozen=True)
class Broker:
    """The app's broker: its Redis, if it is one, and its transport options."""

    endpoint: Endpoint | None
    options: Mapping[str, Any]
    failover: bool

    @classmethod
    def of(cls, connection: Connection) -> Broker:
        options = connection.transport_options or {}
        try:
            endpoint = _endpoint(connection)
        except ValueError:
            # kombu will say so when it connects; here it is not a Redis that tasks could wait in.
            endpoint = None
        return cls(endpoint, options, failover=len(connection.alt or ()) > 1)


def store_endpoint(url: str | None, broker: Broker) -> Endpoint:
    """Where the store is: *url*, or else the broker.

    Raises:
        InvalidSetting: neither is a Redis.
    """
    if url is None:
        if broker.endpoint is None:
            raise InvalidSetting(
                "delayq_url", None, "a redis:// URL, because the broker is not a Redis"
            )
        return broker.endpoint
    try:
        endpoint = _endpoint(Connection(url))
        if endpoint and endpoint.tls is not None and "ssl_cert_reqs" not in url:
            # kombu takes silence for "check no certificate"; this setting is ours, and does not.
            endpoint = replace(endpoint, tls={**endpoint.tls, "ssl_cert_reqs": "required"})
    except (KeyError, TypeError, ValueError):
        endpoint = None
    if endpoint is None:
        raise InvalidSetting("delayq_url", _without_password(url), "a redis:// or rediss:// URL")
    return endpoint


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
    tls = connection.ssl or ({} if connection.transport_cls == "rediss" else None)
    return Endpoint(
        host=host,
        port=connection.port or 6379,
        db=_database(connection.virtual_host),
        tls=None if tls is None else _tls(tls),
        **login,
    )


def _tls(options: Any) -> dict[str, Any]:
    return dict(options) if isinstance(options, Mapping) else {}


def _database(path: str | int | None) -> int:
    number = int(str(path or "0").strip("/") or "0")
    if number < 0:
        raise ValueError(number)
    return number


def _without_password(url: str) -> str:
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}"
