"""Redis Cluster: finds each shard of a store at the node that serves its slot.

    a redis+cluster:// URL --> address --> SlotOwner --asks--> slots --> the nodes
                                              '-- topology <-- MOVED

All keys of a shard have one hash tag, so they are on one node. ``contrib/moving.py`` describes how
a process finds that node; ``slot_owner``, what each refusal of a Cluster means; ``topology``, what
the shards of a store share.
"""

from __future__ import annotations

from .address import nodes_of, owner_of
from .slot_owner import SlotOwner

__all__ = ["SlotOwner", "nodes_of", "owner_of"]
