"""A process's knowledge of a Cluster: the owner of each slot of the store, and the nodes to ask.

shard --> its slot --> the owner, remembered
                         ^ an answer to CLUSTER SLOTS teaches all of them
                         ^ MOVED teaches one, and puts the others in doubt
                         ^ a broken link makes all forget that node
"""

from __future__ import annotations

from itertools import count

from ...core.servers.endpoint import Address
from ..known_master import MasterCache
from .slots import Told


class Topology:
    """The owners of a store's slots, shared by the shards of a process.

    Attributes:
        others: Nodes to ask besides those of the URL.
        turns: Numbers the queries. Each begins at the next node, as one may be cut off from the
            others.
    """

    def __init__(self) -> None:
        self._owners: dict[int, MasterCache] = {}
        self.others: tuple[Address, ...] = ()
        self.turns = count()

    def owner(self, slot: int) -> MasterCache:
        """The owner of a slot, as far as it is known."""
        return self._owners.setdefault(slot, MasterCache())

    def learn(self, slots: Told, at: float, but: int) -> None:
        """Note a node's answer, asked for at that time, for all slots but one."""
        self.others = slots.others
        for slot, owner in list(self._owners.items()):
            address = slots.owner_of(slot)
            if slot != but and address is not None:
                owner.learn(address, at)

    def doubt(self, *, doubted: bool = True) -> None:
        """Query for the owners before the next call; or stop to doubt them."""
        for owner in list(self._owners.values()):
            owner.is_doubted = doubted

    def forget(self, address: Address) -> None:
        """Forget a node that cannot be reached."""
        for owner in list(self._owners.values()):
            owner.forget(address)

    def slot_at(self, address: Address | None = None) -> int | None:
        """Return a slot that is served at an address, or anywhere; ``None`` if none is known."""
        for slot, owner in list(self._owners.items()):
            if owner.address is not None and address in (None, owner.address):
                return slot
        return None
