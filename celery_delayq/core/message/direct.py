"""Whether a script in the store can push a message to a queue's list: exactly once, directly.

Store and broker must be one Redis. In a Cluster, the list must be in the store's slot as well: the
broker's ``global_keyprefix`` begins with the store's hash tag. ``servers/risks.py`` proves it.
"""

from __future__ import annotations

from ..servers.endpoint import Server
from ..settings import Settings
from .broker import Broker


def is_direct(broker: Broker, store: Server, settings: Settings) -> bool:
    """Whether a script can push a message directly into the broker's lists."""
    if broker.endpoint is None or broker.failover:
        return False
    return broker.endpoint.same_database(store) or is_tagged(broker, settings)


def is_tagged(broker: Broker, settings: Settings) -> bool:
    """Whether the broker's keys have the hash tag of the store, and are so in its one slot."""
    prefix = str(broker.options.get("global_keyprefix", ""))
    return settings.shards == 1 and prefix.startswith(f"{{{settings.prefix}:0}}")


def beside(broker: Broker, store: Server) -> Server | None:
    """Return the broker's Redis, if its name does not tell whether it is the store's."""
    if broker.endpoint is None or broker.failover or broker.endpoint.same_database(store):
        return None
    return broker.endpoint
