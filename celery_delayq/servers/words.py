"""What redis-py says of words that are to be handed to it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import redis

TLS = "ssl_"  # what a word for TLS begins with


def connection_refuses(said: Mapping[str, Any]) -> str:
    """Why a connection with TLS cannot be made of these words; empty where it can."""
    return _refusal(redis.SSLConnection, said)


def client_refuses(said: Mapping[str, Any]) -> str:
    """Why a client, as which a sentinel is asked, cannot be made of them; empty where it can."""
    return _refusal(redis.Redis, said)


def _refusal(kind: Any, said: Mapping[str, Any]) -> str:
    try:
        # That does not connect. A value that is wrong is refused where it is read.
        with suppress(redis.RedisError):
            kind(**said)
    except TypeError as error:
        return str(error)
    return ""
