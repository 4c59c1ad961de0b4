"""Redis Sentinel: the broker, or the store, is the current master of a group.

    a sentinel:// URL --> address --> SentinelGroup --asks--> query --> the sentinels
                                          '-- knows: known_master <-- failover_listener

``servers/moving.py`` tells how the master is found; ``group``, how a process learns that it has
moved.
"""

from .address import asked_once, group_of
from .group import ASKED_ONCE, SentinelGroup

__all__ = ["ASKED_ONCE", "SentinelGroup", "asked_once", "group_of"]
