"""Checks whether a Redis can be a store; every user may send HELLO.

A node of a Redis Cluster can be one if it serves the store's slot; the first read of the store's
keys shows whether it does. It can be the broker too only if the queues' lists are in that slot, so
that a script can push to them; see ``beside.py``.
"""

from __future__ import annotations

from ..errors import StoreError, StoreUnavailable
from .connection import Connection, packed
from .refusals import NO_BROKER

SENTINEL = (
    "this is a Redis Sentinel, which keeps nothing; name it by a sentinel:// URL, and its master "
    "by master_name in the transport options"
)


def check_alone(connection: Connection, step: str, until: float | None, *, direct: bool) -> None:
    """Raise if a Redis cannot be the store.

    Args:
        connection: The connection to the Redis.
        step: The step's name in errors.
        until: When to give up, by the monotonic clock.
        direct: Whether the Redis is the broker too, whose lists may be in any slot.

    Raises:
        StoreError: it is a Redis Sentinel; or such a broker, and a node of a Redis Cluster.
        StoreUnavailable: no answer came in time.
    """
    mode = mode_of(connection, step, until)
    if mode == b"sentinel":
        raise StoreError(step, SENTINEL)
    if mode == b"cluster" and direct:
        raise StoreError(step, NO_BROKER)


def mode_of(connection: Connection, step: str, until: float | None = None) -> bytes | None:
    """Return whether a Redis is ``standalone``, a ``sentinel`` or in a ``cluster``, if it says.

    Raises:
        StoreUnavailable: no answer came in time.
    """
    try:
        hello = connection.execute(step, packed(["HELLO", 2]), until)
    except StoreUnavailable:
        raise
    except StoreError:
        return None  # a proxy, or an imitation of Redis, that does not know the command
    mode: bytes | None = dict(zip(hello[::2], hello[1::2], strict=False)).get(b"mode")
    return mode
