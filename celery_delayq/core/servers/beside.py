"""Checks a broker that is a Redis too: is it the node of a Cluster that serves the store?

    the store's id, read by the broker's URL --> the same: one node; MOVED: maybe another node of
                                                 the Cluster; none, or another id: another Redis

A script can push to a queue's list only if the list is in the store's slot: if the broker's
``global_keyprefix`` begins with the store's hash tag. Then delivery is direct, and the two must be
one. Without the tag they must not be in one Cluster, because the broker cannot be used there.
"""

from __future__ import annotations

from typing import Any

from ..errors import StoreError, StoreUnavailable
from .alone import mode_of
from .connection import Connection, PooledConnection, packed
from .endpoint import Endpoint, Server
from .refusals import NO_BROKER, said_of

REACH = 2.0  # seconds that the broker has for an answer
_OTHER = (
    "global_keyprefix in broker_transport_options has the store's hash tag, but the broker {} does "
    "not hold this store; let broker_url name the node of the Cluster that does, or change the "
    "prefix"
)
_MOVED = (
    "the broker {} is a node of a Redis Cluster that does not serve the store's slot; let "
    "broker_url name {}, which does, or use another broker"
)
MOVES = (
    "the broker is a node of a Redis Cluster with %d masters: if the slot of its queues moves, or "
    "this node fails, Celery's workers exit or keep asking the old node"
)


def check_broker(store: Connection, broker: Server, meta: str, *, tagged: bool) -> None:
    """Raise if a broker and the store are one although they must not be, or the reverse.

    Args:
        store: The connection to the store.
        broker: The broker's Redis.
        meta: The key with the store's id.
        tagged: Whether the broker's keys have the store's hash tag.

    Raises:
        StoreUnavailable: it cannot be checked now, and has to be.
        StoreError: they are, or are not.
    """
    question = packed(["HGET", meta, "store"])
    link = PooledConnection(broker, REACH)
    try:
        known, moved = link.execute("join", question), ""
        is_one = known is not None and known == store.execute("join", question)
    except StoreError as error:
        words = said_of(error.__cause__).split()
        is_one, moved = False, words[-1] if words[:1] == ["MOVED"] else ""
        if not moved and tagged:
            raise
        if not moved:
            return  # the relay says what is wrong with the broker
    finally:
        link.close()
    if tagged and not is_one:
        text = _MOVED if moved else _OTHER
        raise StoreError("join", text.format(broker.url, moved))
    if tagged:
        return
    # Two names of one plain Redis are none of our business: the relay delivers.
    if _leads_to(store, moved) or (is_one and mode_of(store, "join") == b"cluster"):
        raise StoreError("join", NO_BROKER)


def _leads_to(store: Connection, moved: str) -> bool:
    """Whether MOVED names the store's node."""
    (host, _, port), node = moved.rpartition(":"), store.node
    if not port or node is None:
        return False
    return Endpoint(host, int(port)).node == Endpoint(*node).node


def masters(store: Connection) -> int:
    """Return how many masters the store's Cluster has; 1 if it is none, or does not say."""
    try:
        ranges: Any = store.execute("join", packed(["CLUSTER", "SLOTS"]))
    except StoreUnavailable:
        raise
    except StoreError:
        return 1
    return len({tuple(master[:2]) for _, _, master, *_ in ranges})
