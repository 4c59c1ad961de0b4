"""The words that the installed redis-py takes, for what is to be handed to it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from typing import Any

import redis

TLS = "ssl_"  # what a word for TLS begins with


@cache
def words_of_connections() -> frozenset[str]:
    """What a connection with TLS takes, by whatever class it is made of."""
    own = [vars(kind).get("__init__") for kind in redis.SSLConnection.__mro__]
    return frozenset().union(*(_words(make) for make in own if make))


@cache
def words_of_clients() -> frozenset[str]:
    """What a client takes, as which a sentinel is asked."""
    return _words(redis.Redis)


def _words(make: Callable[..., Any]) -> frozenset[str]:
    parameters = inspect.signature(make).parameters.values()
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return frozenset(one.name for one in parameters if one.kind in kinds) - {"self"}
