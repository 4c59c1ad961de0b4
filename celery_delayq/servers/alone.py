"""Whether a Redis can be a store: it has to be one by itself.

In a Redis Cluster the queues' lists are on other nodes than the store, where no script can push to
them; so it is asked before anything is done there. Every user may send HELLO.
"""

from __future__ import annotations

from ..errors import StoreError, StoreUnavailable
from .connection import Connection, packed
from .refusals import CLUSTER

_SENTINEL = (
    "this is a Redis Sentinel, which keeps nothing; name it by a sentinel:// URL, and its master "
    "by master_name in the transport options"
)
WHY = {b"cluster": CLUSTER, b"sentinel": _SENTINEL}


def check_alone(connection: Connection, step: str, until: float | None) -> None:
    """Ask a Redis what it is.

    Raises:
        StoreError: a node of a Redis Cluster, or a Redis Sentinel.
        StoreUnavailable: no answer came in time.
    """
    try:
        told = connection.execute(step, packed(["HELLO", 2]), until)
    except StoreUnavailable:
        raise
    except StoreError:
        return  # something in front of it, or an imitation, that does not know the command
    mode = dict(zip(told[::2], told[1::2], strict=False)).get(b"mode")
    if mode in WHY:
        raise StoreError(step, WHY[mode])
