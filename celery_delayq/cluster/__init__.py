"""Redis Cluster: the store lies in one slot, on whichever node serves that at present.

    a redis+cluster:// URL --> address --> SlotOwner --CLUSTER SLOTS--> slots --> a node
                                              '-- knows: known_master <-- MOVED

All keys of a store have one hash tag, so one connection to one node is enough, as with Sentinel.
``slot_owner`` tells what each refusal of a Cluster means.
"""

from .address import nodes_of, owner_of
from .slot_owner import SlotOwner

__all__ = ["SlotOwner", "nodes_of", "owner_of"]
