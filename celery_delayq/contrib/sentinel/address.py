"""Reads sentinels and their master from kombu's URLs and options."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from kombu import Connection
from kombu.utils.url import url_to_parts

from ...core.errors import InvalidSetting
from ...core.message.broker import (
    Names,
    credentials_of,
    database_of,
    is_sentinel,
    login_of,
    number_of,
    provider_of,
    tls_of,
    tls_of_redis,
    urls_of,
)
from ...core.servers.endpoint import TLS, Endpoint
from ...core.text import without_secrets
from ..moving import ASK
from .group import ASKED_ONCE, SentinelGroup

PORT = 26379
_MASTER = "the name of a master that the sentinels know, such as 'mymaster'"
_NO_BLANK = "URLs parted by ';' alone: of one behind a blank, kombu reads no host"
_SECONDS = "a number of seconds above 0"
_SENTINELS = "a whole number of sentinels, 0 or more"


def group_of(connection: Connection, options: Mapping[str, Any], names: Names) -> SentinelGroup:
    """Return the group of the master that sentinels name.

    As with kombu, the master's database, login and TLS come from the first URL and the options of
    the connection; the other URLs give only host and port. ``sentinel_kwargs`` has the options of
    the sentinels.

    Args:
        connection: kombu's connection, not open.
        options: The transport options.
        names: The names of the settings with all of this.

    Raises:
        InvalidSetting: a part is missing or invalid.
        ValueError: the URL names no database.
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
    about_tls = {word: value for word, value in asking.items() if str(word).startswith(TLS)}
    tls = tls_of(about_tls, of_asking) if asking.get("ssl") else None
    sentinels = [
        Endpoint(host=host or "localhost", port=port or PORT, tls=tls, **login)
        for host, port in _places(connection, names.url)
    ]
    words = ("socket_timeout", "socket_connect_timeout")
    limits = [_seconds_of(asking, word, of_asking) for word in words]
    provider = provider_of(connection, options)
    return SentinelGroup(
        master,
        tuple(sentinels),
        Endpoint(
            db=database_of(connection.virtual_host),
            tls=tls_of_redis(connection, names.tls),
            **login_of(connection.userid, connection.password, provider, name),
        ),
        ask=min((limit for limit in limits if limit), default=ASK),
        others=_others_of(options, name),
    )


def asked_once(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return a broker's transport options with which kombu asks each sentinel once."""
    asking = {**ASKED_ONCE, **(options.get("sentinel_kwargs") or {})}
    provider = asking.get("credential_provider")
    if provider is not None:
        # kombu passes it to redis-py unchanged.
        name = "broker_transport_options['sentinel_kwargs']['credential_provider']"
        asking["credential_provider"] = credentials_of(provider, name)
    return {"sentinel_kwargs": asking}


def _places(connection: Connection, name: str) -> Iterable[tuple[str | None, int | None]]:
    """Yield host and port of each sentinel once; *name* is the setting's."""
    urls = urls_of(connection)
    if any(url[0].isspace() for url in urls):
        raise InvalidSetting(name, without_secrets(";".join(urls)), _NO_BLANK)
    parts = [url_to_parts(url) for url in urls if is_sentinel(url)]
    places = [(part.hostname, part.port) for part in parts] or [
        (connection.hostname, connection.port)
    ]
    return dict.fromkeys(places)


def _seconds_of(options: Mapping[str, Any], word: str, name: str) -> float | None:
    """Return an option in seconds, which may be a string; ``None`` if it is not set.

    Raises:
        InvalidSetting: it is no number above 0.
    """
    value = options.get(word)
    if value is None:
        return None
    number = number_of(value)
    if not 0 < number < math.inf:
        raise InvalidSetting(f"{name}[{word!r}]", value, _SECONDS)
    return number


def _others_of(options: Mapping[str, Any], name: str) -> int:
    """Return how many other sentinels a sentinel must know; the option may be a string.

    Raises:
        InvalidSetting: it is no whole number, or below 0.
    """
    value = options.get("min_other_sentinels")
    number = 0.0 if value is None else number_of(value)
    if not (number >= 0 and number.is_integer()):
        raise InvalidSetting(f"{name}['min_other_sentinels']", value, _SENTINELS)
    return int(number)
