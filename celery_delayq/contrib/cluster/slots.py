"""Asks the nodes of a Cluster which of them serves a slot, one node after the other.

    a node --> the next node --> ...      until one names a node that can be used
      |             |
      down, silent, or without an answer: the reason is kept

Each node has a share of the time. Every version of Redis and Valkey answers ``CLUSTER SLOTS``;
``CLUSTER SHARDS`` needs Redis 7.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import redis

from ...core import clock
from ...core.servers.endpoint import Address, Endpoint, shown
from ..moving import FAILED, TRY, WRONG, is_final

# The answers of a plain Redis; a hosted one may lack the command.
_NO_CLUSTER = ("cluster support disabled", "unknown command", "unknown subcommand")


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
