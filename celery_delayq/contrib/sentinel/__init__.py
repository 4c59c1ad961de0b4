"""Redis Sentinel: finds the broker or the store as the current master of a group.

    a sentinel:// URL --> address --> SentinelGroup --asks--> query --> the sentinels
                                          '-- known_master <--heard-- failover_listener

``contrib/moving.py`` describes how a process finds the master; ``group``, how it learns that it has
moved.
"""

from __future__ import annotations

from .address import asked_once, group_of
from .group import ASKED_ONCE, SentinelGroup

__all__ = ["ASKED_ONCE", "SentinelGroup", "asked_once", "group_of"]
