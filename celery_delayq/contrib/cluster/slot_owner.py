"""A Redis that is found through the nodes of a Cluster: the current owner of a shard's slot.

``contrib/moving.py`` describes how a process finds such a master. Here it asks nodes, by
``slots.py``, and a refusal says more. Redis did nothing, and

    MOVED              names the new owner: go there at once
    ASK, TRYAGAIN      the slot is being moved: try again after a pause
    CLUSTERDOWN        no node serves the slot: the same, and ask another node for the owner

If a link breaks or is silent, the process asks another node as well. The shards of a store share
what they learn; see ``topology.py``.

A script declares every key that it may touch, and most of these are empty. So while a slot is moved
key by key, both nodes refuse with TRYAGAIN or ASK. Following an ASK would only meet a TRYAGAIN.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import redis

from ...core import clock
from ...core.servers.connection import said_of
from ...core.servers.endpoint import Address, Endpoint, shown
from ..known_master import MasterCache
from ..moving import AGAIN, MovingMaster, address_of
from .slots import SlotQuery
from .topology import Topology

_LATER = ("ASK", "TRYAGAIN", "CLUSTERDOWN")
MOST_OTHERS = 8  # nodes to ask besides those of the URL


@dataclass(frozen=True)
class SlotOwner(MovingMaster):
    """The node of a Cluster that serves a slot.

    Args:
        slot: The slot.
        seeds: Addresses of nodes, or of an endpoint that leads to any node.
        server: The database, login and TLS of each node.
        address_map: The address to use for an announced one.
        cluster: The knowledge of the Cluster, which the owners of a store's slots share.
    """

    slot: int
    seeds: tuple[Address, ...]
    server: Endpoint
    address_map: Mapping[Address, Address] = field(default_factory=dict)
    cluster: Topology = field(default_factory=Topology, compare=False, repr=False)
    _found: MasterCache = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_found", self.cluster.owner(self.slot))

    def at(self, slot: int) -> SlotOwner:
        return self if slot == self.slot else replace(self, slot=slot)

    def known(self) -> SlotOwner:
        slot = self.slot if self.node else self.cluster.slot_at()
        return self if slot is None else self.at(slot)

    def is_shared(self, connection: Any) -> bool:
        """Whether a connection leads to a node that serves one of the store's slots."""
        return self.cluster.slot_at(address_of(connection)) is not None

    def lost(self, connection: Any) -> None:
        """Let all shards query for their owner that had it at this node."""
        self.cluster.forget(address_of(connection))

    @property
    def url(self) -> str:
        """The nodes and the database, without logins."""
        scheme = "redis" if self.server.tls is None else "rediss"
        hosts = ";".join(shown(*seed) for seed in self.seeds)
        return f"{scheme}+cluster://{hosts}/{self.server.db}"

    @property
    def kind(self) -> str:
        return f"redis cluster, database {self.server.db}"  # unused: no broker is in a Cluster

    @property
    def place(self) -> tuple[object, ...]:
        return (self.slot, frozenset(self.seeds), self.server.tls is None, self.server.db)

    def refused(self, connection: Any, error: redis.ResponseError) -> None:
        super().refused(connection, error)
        code = _code_of(error)
        if code == "MOVED":
            host, port = str(error).split()[-1].rsplit(":", 1)
            if host == "?":
                self.lost(connection)
            else:
                # Without a host, the owner is at the host that answered.
                address = self._reachable((host or connection.host, int(port)))
                self.cluster.doubt()  # after a failover, other slots have moved as well
                self.moved(address, address_of(connection))
                self._found.is_doubted = False
        elif code == "CLUSTERDOWN":
            self.doubt()

    def again_after(self, error: BaseException | None, turn: int) -> float | None:
        code = _code_of(error)
        if code == "MOVED":
            # At the end of a migration, two nodes may each name the other one.
            return AGAIN if turn else 0.0
        if code in _LATER:
            return AGAIN
        return super().again_after(error, turn)

    def close(self) -> None:
        """Do nothing: no link stays open."""

    def _named_first(self, until: float) -> Address | None:
        try:
            return super()._named_first(until)
        except redis.ResponseError:
            return None  # a refusal says nothing about the owner

    def _named(self, until: float, errors: list[str]) -> Iterator[Address]:
        cluster = self.cluster
        nodes = list(dict.fromkeys([*self.seeds, *cluster.others[:MOST_OTHERS]]))
        first = next(cluster.turns) % len(nodes)
        query, at = SlotQuery(self.slot, self.server, self._reachable), clock.monotonic()
        cluster.doubt(doubted=False)  # before the question: a later doubt needs a later answer
        for answer in query.told(nodes[first:] + nodes[:first], until, errors):
            cluster.learn(answer, at, but=self.slot)
            yield answer.owner

    def _reachable(self, announced: Address) -> Address:
        return self.address_map.get(announced, announced)

    def _unknown(self, errors: list[str]) -> str:
        return f"no node tells who serves slot {self.slot} of {self.url}: {'; '.join(errors)}"

    def _unusable(self, tried: dict[Address, str]) -> str:
        each = "; ".join(f"{shown(*address)}: {why}" for address, why in tried.items())
        return (
            f"the owner of slot {self.slot} of {self.url} cannot be used; if it announces an "
            f"address that cannot be reached, set address_map in delayq_transport_options: {each}"
        )


def _code_of(error: BaseException | None) -> str:
    # By text, as redis-py 5 has no classes for these codes.
    return "" if error is None else said_of(error).partition(" ")[0]
