"""Redis Cluster: finds each shard of a store at the node that serves its slot.

    SlotOwner --asks--> SlotQuery --CLUSTER SLOTS--> one node after the other
        '-- Topology: the owner of each slot that a shard has, and the nodes to ask
              ^ an answer teaches all of them
              ^ MOVED teaches one, and puts the others in doubt
              ^ a broken link makes all forget that node

All keys of a shard have one hash tag, so they are on one node. ``contrib/moving.py`` describes how
a process finds that node. If a link breaks or is silent, the process asks another node as well.
Every version of Redis and Valkey answers ``CLUSTER SLOTS``; ``CLUSTER SHARDS`` needs Redis 7.

A refusal says more than one of a single Redis. Redis did nothing, and

    MOVED              names the new owner: go there at once
    ASK, TRYAGAIN      the slot is being moved: try again after a pause
    CLUSTERDOWN        no node serves the slot: the same, and ask another node for the owner

A script declares every key that it may touch, and most of these are empty. So while a slot is moved
key by key, both nodes refuse with TRYAGAIN or ASK. Following an ASK would only meet a TRYAGAIN.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, NamedTuple

import redis
from kombu.utils.url import url_to_parts

from ..core import clock
from ..core.errors import InvalidSetting
from ..core.servers.connection import said_of
from ..core.servers.endpoint import Address, Endpoint, shown
from ..core.text import without_secrets
from .moving import AGAIN, FAILED, TRY, WRONG, MasterCache, MovingMaster, address_of, is_final

__all__ = ["SlotOwner", "nodes_of", "owner_of"]

# The answers of a plain Redis; a hosted one may lack the command.
_NO_CLUSTER = ("cluster support disabled", "unknown command", "unknown subcommand")
_LATER = ("ASK", "TRYAGAIN", "CLUSTERDOWN")
MOST_OTHERS = 8  # nodes to ask besides those of the URL
PORT = 6379
_PLACE = re.compile(r"([^/?]*)(.*)", re.DOTALL)  # login, host and port; then database and query
_NODES = "a URL whose nodes are parted by ';', each with a number as its port"
_MAP = (
    "a mapping from addresses that nodes announce to addresses that this process can reach, such "
    "as {'10.0.0.5:6379': 'redis.example.com:7001'}"
)


class Told(NamedTuple):
    """A node's answer.

    ``owner``: the owner of the slot.
    ``others``: more nodes to ask, the owner's replicas first.
    ``ranges``: the first slot, the last slot and the master of each range.
    """

    owner: Address
    others: tuple[Address, ...]
    ranges: tuple[tuple[int, int, Address], ...] = ()

    def owner_of(self, slot: int) -> Address | None:
        """Return the owner of another slot, if it has one."""
        return next((master for low, high, master in self.ranges if low <= slot <= high), None)


@dataclass(frozen=True)
class SlotQuery:
    """A question to the nodes of a Cluster.

    Args:
        slot: The slot.
        server: The login and TLS of each node.
        reachable: Returns the address to use for an announced one.
    """

    slot: int
    server: Endpoint
    reachable: Callable[[Address], Address]

    def told(self, nodes: Sequence[Address], until: float, errors: list[str]) -> Iterator[Told]:
        """Yield the answer of each node; *errors* gets the failures.

        Raises:
            redis.exceptions.ResponseError: a node is not in a Cluster, or refuses for good.
        """
        for turn, node in enumerate(nodes):
            # Each of them gets a share of what is left, and so does the owner.
            seconds = min(TRY, clock.seconds_left(until) / (len(nodes) - turn + 1))
            try:
                slots = self._told_by(node, seconds)
            except FAILED as error:
                if is_final(error):
                    raise
                errors.append(f"{shown(*node)}: {error}")
            except WRONG as error:
                errors.append(f"{shown(*node)}: it answers as no Cluster does ({error!r})")
            else:
                if slots is None:
                    errors.append(f"{shown(*node)}: no node serves slot {self.slot}")
                else:
                    yield slots

    def _told_by(self, node: Address, seconds: float) -> Told | None:
        # The question to the owner names the database; this one needs none.
        place = replace(self.server, host=node[0], port=node[1], db=0)
        connection = place.connection(seconds)
        try:
            connection.connect()
            connection.send_command("CLUSTER", "SLOTS")
            ranges = connection.read_response()
        except redis.ResponseError as error:
            if any(words in str(error).lower() for words in _NO_CLUSTER):
                raise redis.ResponseError(_no_cluster(node)) from error
            raise
        finally:
            connection.disconnect()
        return self._read(ranges, node)

    def _read(self, ranges: Any, node: Address) -> Told | None:
        """Find the slot's owner in an answer; each range names its master first."""
        owner: Address | None = None
        replicas: list[Address] = []
        masters: list[tuple[int, int, Address]] = []
        for low, high, *servers in ranges:
            addresses = [self.reachable(_address_of(server, node)) for server in servers]
            if low <= self.slot <= high:
                owner, *replicas = addresses
            masters.append((low, high, addresses[0]))
        if owner is None:
            return None
        others = dict.fromkeys([*replicas, owner, *(master for _, _, master in masters)])
        return Told(owner, tuple(others), tuple(masters))


def _address_of(server: Any, asked: Address) -> Address:
    """Return the address of a node; without a host, it is at the host that answered."""
    host, port, *rest = server
    if host == b"?":  # it announces host names, and has none; its IP address comes later
        pairs = rest[1] if len(rest) > 1 else []
        host = dict(zip(pairs[::2], pairs[1::2], strict=False)).get(b"ip")
    return (host.decode() if host else asked[0]), int(port)


def _no_cluster(node: Address) -> str:
    return (
        f"{shown(*node)} is no node of a Redis Cluster; let delayq_url be a redis:// or rediss:// "
        "URL, without +cluster"
    )


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
        tls = "" if self.server.tls is None else "s"
        hosts = ";".join(shown(*seed) for seed in self.seeds)
        return f"{self.server.scheme}{tls}+cluster://{hosts}/{self.server.db}"

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


def nodes_of(url: str) -> list[str]:
    """Return the nodes that a ``redis+cluster://`` URL names, each as a URL of a plain Redis.

    The first one has the login, the database and the query.

    >>> nodes_of("redis+cluster://:secret@h1:7000;h2:7001/0")
    ['redis://:secret@h1:7000/0', 'redis://h2:7001']
    """
    scheme, _, rest = url.strip().partition("+cluster://")
    texts = [text.strip().removeprefix(f"{scheme}+cluster://") for text in rest.split(";")]
    parts = [match.groups() for text in texts if text and (match := _PLACE.match(text))]
    first, *others = [place for place, _ in parts] or [""]
    tail = next((tail for _, tail in reversed(parts) if tail), "")
    return [f"{scheme}://{first}{tail}", *(f"{scheme}://{other}" for other in others)]


def owner_of(
    first: Endpoint,
    url: str,
    slot: int,
    options: Mapping[str, Any],
    names: tuple[str, str],
) -> SlotOwner:
    """Return the node that serves a slot, as a server; nothing is connected.

    Args:
        first: The first node, with the login, the database and TLS of all.
        url: The URL that names all nodes.
        slot: The slot; :meth:`SlotOwner.at` returns the owners of others.
        options: The transport options.
        names: The settings of URL and options.

    Raises:
        InvalidSetting: a port is no number, or ``address_map`` is no map of addresses.
    """
    try:
        parts = [url_to_parts(node) for node in nodes_of(url)]
        seeds = {(part.hostname or "localhost", part.port or PORT): None for part in parts}
    except ValueError:
        seeds = {}
    if not seeds:  # raised outside of the block, as that error has a part of the URL
        raise InvalidSetting(names[0], without_secrets(url), _NODES)
    given = options.get("address_map")
    return SlotOwner(slot, tuple(seeds), first, _map_of(given, f"{names[1]}['address_map']"))


def _map_of(given: Any, name: str) -> dict[Address, Address]:
    if given is None:
        return {}
    try:
        return {_address_in(announced): _address_in(real) for announced, real in given.items()}
    except (AttributeError, ValueError):
        raise InvalidSetting(name, given, _MAP) from None


def _address_in(text: str) -> Address:
    host, _, port = text.rpartition(":")
    if not host:
        raise ValueError(text)
    return host.strip("[]"), int(port)
