"""Whether a Redis can be a store: it has to be one by itself, and must not lose what waits.

In a Redis Cluster the queues' lists are on other nodes than the store, where no script can push to
them; so it is asked before anything is done there. Every user may send HELLO.

Whether it may lose what waits not every user may ask; where it does not say, it is not doubted.
"""

from __future__ import annotations

import re
from typing import Any

from ..errors import StoreError, StoreUnavailable
from .connection import Connection, packed
from .refusals import CLUSTER

_SENTINEL = (
    "this is a Redis Sentinel, which keeps nothing; name it by a sentinel:// URL, and its master "
    "by master_name in the transport options"
)
_WHY = {b"cluster": CLUSTER, b"sentinel": _SENTINEL}


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
    if mode in _WHY:
        raise StoreError(step, _WHY[mode])


def dangers(connection: Connection) -> list[str]:
    """How a Redis may lose what waits, and what to do about it: a sentence each.

    Raises:
        StoreUnavailable: no answer came in time.
    """
    found = []
    policy = _evicting_policy(connection)
    if policy:
        found.append(
            "the store's Redis deletes what waits when its memory is full, as its "
            f"maxmemory-policy is {policy}; set noeviction"
        )
    if _keeps_nothing(connection):
        found.append(
            "the store's Redis loses what waits when it restarts, as it has neither an append-only "
            "file nor save points; set appendonly yes"
        )
    return found


def _evicting_policy(connection: Connection) -> str:
    told = _ask(connection, "INFO", "memory")
    found = dict(re.findall(rb"^(maxmemory|maxmemory_policy):([\w-]+)", told or b"", re.MULTILINE))
    policy: str = found.get(b"maxmemory_policy", b"").decode()
    # The others delete only what has a time to live, which no key of the store has.
    return policy if policy.startswith("allkeys-") and int(found.get(b"maxmemory", 0)) else ""


def _keeps_nothing(connection: Connection) -> bool:
    told = _ask(connection, "INFO", "persistence")
    if not re.search(rb"^aof_enabled:0\b", told or b"", re.MULTILINE):
        return False
    return bool(_ask(connection, "CONFIG", "GET", "save") == [b"save", b""])


def _ask(connection: Connection, *command: str) -> Any:
    """What Redis says, or ``None`` where the user may not ask."""
    try:
        return connection.execute(command[0].lower(), packed(command))
    except StoreUnavailable:
        raise
    except StoreError:
        return None
