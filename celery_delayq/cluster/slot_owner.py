"""A Redis that is found through the nodes of a Cluster: whoever serves the store's slot at present.

``servers/moving.py`` tells how such a master is found. Here, those who are asked are nodes
(``slots.py``), and refusals tell more:

    MOVED                      nothing was done; the slot is there: go there, at once
    ASK, TRYAGAIN              nothing was done; the slot is being moved: again, after a pause
    CLUSTERDOWN                nothing was done; as before, and ask another node who serves the slot
    a broken or silent link    ask another node

A step declares all keys that it may touch, and most of them are empty. So while a slot is moved key
by key, both nodes refuse with TRYAGAIN or ASK, and to follow an ASK would be of no use.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import redis
from redis.exceptions import AskError, ClusterDownError, MovedError, TryAgainError

from ..servers.endpoint import Address, Endpoint, shown
from ..servers.known_master import MasterCache
from ..servers.moving import AGAIN, MovingMaster, address_of
from .slots import SlotQuery

MOST_OTHERS = 8  # nodes that are asked besides those of the URL


class KnownOwner(MasterCache):
    """What a process knows of the slot's owner, and which nodes it may ask."""

    def __init__(self) -> None:
        super().__init__()
        self.others: tuple[Address, ...] = ()
        # A node that is cut off from the others does not begin twice in a row.
        self.turns = count()


@dataclass(frozen=True)
class SlotOwner(MovingMaster):
    """The node of a Cluster that serves a slot.

    Args:
        slot: The store's.
        seeds: Nodes, or an endpoint that leads to any of them.
        server: How each node lets one in: database, login, TLS.
        address_map: For an address that a node announces, the one to connect to.
    """

    slot: int
    seeds: tuple[Address, ...]
    server: Endpoint
    address_map: Mapping[Address, Address] = field(default_factory=dict)
    _found: KnownOwner = field(default_factory=KnownOwner, init=False, compare=False, repr=False)

    @property
    def url(self) -> str:
        """Nodes and database, without logins."""
        scheme = "redis" if self.server.tls is None else "rediss"
        hosts = ";".join(shown(*one) for one in self.seeds)
        return f"{scheme}+cluster://{hosts}/{self.server.db}"

    @property
    def kind(self) -> str:
        """Never a broker's, as Celery has none in a Cluster."""
        return f"redis cluster, database {self.server.db}"

    @property
    def place(self) -> tuple[object, ...]:
        """Equal for two that name the same slot by the same nodes, as far as names tell."""
        return (self.slot, frozenset(self.seeds), self.server.tls is None, self.server.db)

    def refused(self, connection: Any, error: redis.ResponseError) -> None:
        """Take note of where the slot is."""
        super().refused(connection, error)
        if isinstance(error, MovedError):
            host, port = str(error).split()[-1].rsplit(":", 1)
            if host == "?":
                self.lost(connection)
            else:
                # Without a host, it is the one that was asked.
                address = self._reachable((host or connection.host, int(port)))
                self.moved(address, address_of(connection))
        elif isinstance(error, ClusterDownError):
            self.doubt()

    def again_after(self, error: BaseException | None, turn: int) -> float | None:
        """Seconds after which a refused command may be sent again; ``None``: never."""
        if isinstance(error, MovedError):
            # While a slot changes hands, two nodes may each name the other one.
            return AGAIN if turn else 0.0
        if isinstance(error, (AskError, TryAgainError, ClusterDownError)):
            return AGAIN
        return super().again_after(error, turn)

    def close(self) -> None:
        """Nothing is open."""

    def forget(self) -> None:
        """Nothing is kept that belongs to the parent."""

    def _named_first(self, until: float) -> Address | None:
        try:
            return super()._named_first(until)
        except redis.ResponseError:
            return None  # a node that refuses says nothing of the one that is waited for

    def _named(self, until: float, errors: list[str]) -> Iterator[Address]:
        found = self._found
        nodes = list(dict.fromkeys([*self.seeds, *found.others[:MOST_OTHERS]]))
        first = next(found.turns) % len(nodes)
        query = SlotQuery(self.slot, self.server, self._reachable)
        for told in query.told(nodes[first:] + nodes[:first], until, errors):
            found.others = told.others
            yield told.owner

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
