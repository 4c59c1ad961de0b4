"""Redis Sentinel: the broker, or the store, is the current master of a group.

    a sentinel:// URL --> address --> SentinelGroup --asks--> council --> the sentinels
                                          '-- knows: found <--heard-- herald

``group`` tells how the master is found, and how a process learns that it has moved.
"""

from .address import asked_once, group_of
from .group import ASK, ASKED_ONCE, SentinelGroup

__all__ = ["ASK", "ASKED_ONCE", "SentinelGroup", "asked_once", "group_of"]
