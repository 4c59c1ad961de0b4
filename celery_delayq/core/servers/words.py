"""Checks redis-py's options before redis-py gets them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import redis

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
