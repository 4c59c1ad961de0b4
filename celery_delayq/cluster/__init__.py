"""Redis Cluster: finds the store as the node that serves its slot.

    a redis+cluster:// URL --> address --> SlotOwner --asks--> slots --> the nodes
                                              '-- known_master <-- MOVED

All keys of a store have one hash tag, so a process needs only one node. ``servers/moving.py``
describes how it finds that node; ``slot_owner``, what each refusal of a Cluster means.
"""

from .address import nodes_of, owner_of
from .slot_owner import SlotOwner

__all__ = ["SlotOwner", "nodes_of", "owner_of"]
