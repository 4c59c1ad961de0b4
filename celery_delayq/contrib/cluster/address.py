"""Reads a redis+cluster:// URL and its options."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from kombu.utils.url import url_to_parts

from ...core.errors import InvalidSetting
from ...core.servers.endpoint import Address, Endpoint
from ...core.text import without_secrets
from .slot_owner import SlotOwner

PORT = 6379
_PLACE = re.compile(r"([^/?]*)(.*)", re.DOTALL)  # login, host and port; then database and query
_NODES = "a URL whose nodes are parted by ';', each with a number as its port"
_MAP = (
    "a mapping from addresses that nodes announce to addresses that this process can reach, such "
    "as {'10.0.0.5:6379': 'redis.example.com:7001'}"
)


def nodes_of(url: str) -> list[str]:
    """Return the nodes that a ``redis+cluster://`` URL names, each as a URL of a plain Redis.

    The first one has the login, the database and the query.

    >>> nodes_of("redis+cluster://:secret@h1:7000;h2:7001/0")
    ['redis://:secret@h1:7000/0', 'redis://h2:7001']
    """
    scheme, _, rest = url.strip().partition("+cluster://")
    texts = [text.strip().removeprefix(f"{scheme}+cluster://") for text in rest.split(";")]
    parts = [match.groups() for text in texts if text and (match := _PLACE.match(text))]
    first, *others = [place for place, _ in parts] or [""]
    tail = next((tail for _, tail in reversed(parts) if tail), "")
    return [f"{scheme}://{first}{tail}", *(f"{scheme}://{other}" for other in others)]


def owner_of(
    first: Endpoint,
    url: str,
    slot: int,
    options: Mapping[str, Any],
    names: tuple[str, str],
) -> SlotOwner:
    """Return the node that serves a slot, as a server; nothing is connected.

    Args:
        first: The first node, with the login, the database and TLS of all.
        url: The URL that names all nodes.
        slot: The slot; :meth:`SlotOwner.at` returns the owners of others.
        options: The transport options.
        names: The settings of URL and options.

    Raises:
        InvalidSetting: a port is no number, or ``address_map`` is no map of addresses.
    """
    try:
        parts = [url_to_parts(node) for node in nodes_of(url)]
        seeds = {(part.hostname or "localhost", part.port or PORT): None for part in parts}
    except ValueError:
        seeds = {}
    if not seeds:  # raised outside of the block, as that error has a part of the URL
        raise InvalidSetting(names[0], without_secrets(url), _NODES)
    given = options.get("address_map")
    return SlotOwner(slot, tuple(seeds), first, _map_of(given, f"{names[1]}['address_map']"))


def _map_of(given: Any, name: str) -> dict[Address, Address]:
    if given is None:
        return {}
    try:
        return {_address_in(announced): _address_in(real) for announced, real in given.items()}
    except (AttributeError, ValueError):
        raise InvalidSetting(name, given, _MAP) from None


def _address_in(text: str) -> Address:
    host, _, port = text.rpartition(":")
    if not host:
        raise ValueError(text)
    return host.strip("[]"), int(port)
