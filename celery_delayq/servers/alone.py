"""Whether a Redis can be a store at all; every user may send HELLO.

A node of a Redis Cluster can be one if it serves the store's slot; the first read of the store's
keys finds out. It cannot be the broker too: the queues' lists are in other slots, and no script can
push to them.
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
    """Ask a Redis what it is.

    Args:
        connection: To the Redis.
        step: What it is for, as an error shall say.
        until: When to give up, by the monotonic clock.
        direct: Whether it is the broker as well.

    Raises:
        StoreError: it is a Redis Sentinel; or a node of a Redis Cluster, and the broker.
        StoreUnavailable: no answer came in time.
    """
    try:
        told = connection.execute(step, packed(["HELLO", 2]), until)
    except StoreUnavailable:
        raise
    except StoreError:
        return  # something in front of it, or an imitation, that does not know the command
    mode = dict(zip(told[::2], told[1::2], strict=False)).get(b"mode")
    if mode == b"sentinel":
        raise StoreError(step, SENTINEL)
    if mode == b"cluster" and direct:
        raise StoreError(step, NO_BROKER)
