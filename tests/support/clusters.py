"""A Redis Cluster of the suite's own: masters on loopback, and a replica on request.

    client --> any node --MOVED--> the node that serves the slot

Slots are moved the old way, key by key, as Redis 7.0 does it.
"""

import contextlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from celery_delayq.core.store.keys import slot_of
from tests.support.ports import free_port
from tests.support.redis_programs import default_binary, on_path, version_of
from tests.support.redis_server import RedisServer
from tests.support.waiting import PATIENCE, eventually

SLOTS = 16384
MASTERS = 3
# After so many ms a silent node counts as down: soon, if a replica has to take over, and else no
# sooner than a busy machine lets a process wait.
NODE_TIMEOUT_MS = {True: 500, False: 5000}
STORE = slot_of("delayq:0")  # the slot of a store with the default prefix


class Node(RedisServer):
    """One Redis of a Cluster."""

    def __init__(
        self, timeout_ms: int, *config: str, binary: str | None = None, tls: Path | None = None
    ):
        super().__init__(*config, binary=binary or _binary(), tls=tls)
        self.bus_port = 0
        self._timeout_ms = timeout_ms

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self.port

    def ask(self, *words: object) -> object:
        """Its answer to ``CLUSTER ...``."""
        # Asked hundreds of times until all nodes know each other, so no connection stays.
        with self.client() as client:
            return client.execute_command("CLUSTER", *words)

    def info(self) -> dict:
        """Its report about its replication."""
        with self.client() as client:
            return client.info("replication")

    @property
    def id(self) -> str:
        return self.ask("MYID").decode()

    def knows(self) -> dict[int, int]:
        """The first slot of each range, and the port of its master."""
        return {low: master[1] for low, _, master, *_ in self.ask("SLOTS")}

    def _command(self) -> list[str]:
        self.bus_port = free_port()
        return [
            *super()._command(),
            *(("--tls-cluster", "yes") if self._tls else ()),
            *("--cluster-enabled", "yes", "--cluster-port", str(self.bus_port)),
            *("--cluster-node-timeout", str(self._timeout_ms)),
            *("--cluster-replica-validity-factor", "0", "--repl-diskless-sync-delay", "0"),
            # Before its master's first ping, no node names a replica.
            *("--repl-ping-replica-period", "1"),
        ]


def _binary() -> str | None:
    """The server that this run tests; Redis 6.2 lacks commands that make these Clusters."""
    asked = default_binary()
    return asked if asked and version_of(asked) >= (7,) else on_path()


class ClusterServers:
    """Masters, each with as many slots.

    Args:
        masters: How many.
        config: Of each node.
        replica: How many replicas, each of another master; the first one of the store's owner.
        binary: The server's program.
        tls: A folder with certificates.
    """

    def __init__(
        self,
        masters: int = MASTERS,
        *config: str,
        replica: int = 0,
        binary: str | None = None,
        tls: Path | None = None,
    ):
        self._kind = {"binary": binary, "tls": tls}
        self._config = (NODE_TIMEOUT_MS[bool(replica)], *config)
        self.nodes = [self._new() for _ in range(masters + replica)]
        self.masters = self.nodes[:masters]

    def _new(self) -> Node:
        return Node(*self._config, **self._kind)

    def __enter__(self):
        self._stack = contextlib.ExitStack()
        with contextlib.ExitStack() as stack:
            with ThreadPoolExecutor() as threads:
                list(threads.map(stack.enter_context, self.nodes))
            self._join()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _join(self) -> None:
        first = self.nodes[0]
        for number, node in enumerate(self.nodes):
            # Otherwise each chooses one, and for a moment several may have the same.
            node.ask("SET-CONFIG-EPOCH", number + 1)
            if node in self.masters:
                ends = [SLOTS * one // len(self.masters) for one in (number, number + 1)]
                node.ask("ADDSLOTSRANGE", ends[0], ends[1] - 1)
            if node is not first:
                first.ask("MEET", *node.address, node.bus_port)
        eventually(self.is_whole)
        owners = [self.owner, *self.others()]
        for replica, owner in zip(self.nodes[len(self.masters) :], owners, strict=False):
            replica.ask("REPLICATE", owner.id)
            eventually(lambda one=replica: one.info()["master_link_status"] == "up")
        count = len(self.nodes) - len(self.masters)
        eventually(lambda: all(self._replicas(one) == count for one in self.masters))

    def is_whole(self) -> bool:
        """Whether all nodes that run serve, know each other, and agree on who has which slot."""
        running = [one for one in self.nodes if one.running]
        infos = [one.ask("INFO") for one in running]
        known = [one.knows() for one in running]
        count = f"cluster_known_nodes:{len(self.nodes)}\r".encode()
        return all(b"cluster_state:ok" in one and count in one for one in infos) and all(
            one == known[0] for one in known
        )

    def _replicas(self, node: Node) -> int:
        """The number of replicas that a node knows."""
        return sum(len(servers) - 1 for _, _, *servers in node.ask("SLOTS"))

    def add(self) -> Node:
        """Add a master without slots."""
        node = self._stack.enter_context(self._new())
        self.nodes.append(node)
        self.masters.append(node)
        node.ask("SET-CONFIG-EPOCH", len(self.nodes))
        self.nodes[0].ask("MEET", *node.address, node.bus_port)
        eventually(self.is_whole)
        return node

    def url(self, *nodes: int, db: int = 0) -> str:
        """A URL that names these nodes, or all masters."""
        hosts = [f"127.0.0.1:{self.nodes[one].port}" for one in nodes or range(len(self.masters))]
        return f"redis+cluster://{';'.join(hosts)}/{db}"

    # The node that serves the store's slot.

    def owner_by(self, node: Node, slot: int = STORE) -> Node | None:
        """That node, or another slot's, according to *node*."""
        ports = [master[1] for low, high, master, *_ in node.ask("SLOTS") if low <= slot <= high]
        return next((one for one in self.nodes if ports == [one.port]), None)

    def owner_of(self, slot: int) -> Node:
        running = (one for one in self.nodes if one.running)
        return self.owner_by(next(running), slot)

    @property
    def owner(self) -> Node:
        return self.owner_of(STORE)

    def others(self, slot: int = STORE) -> list[Node]:
        """The masters that do not serve it."""
        return [one for one in self.masters if one is not self.owner_of(slot)]

    def empty(self) -> None:
        for one in self.masters:
            one.empty()

    # Changes of a slot.

    def begin_move(
        self, keys: int = 0, slot: int = STORE, to: Node | None = None
    ) -> tuple[Node, Node]:
        """Begin to move the slot, with some of its keys; return its owner, and the next one."""
        owner, to = self.owner_of(slot), to or self.others(slot)[0]
        to.ask("SETSLOT", slot, "IMPORTING", owner.id)
        owner.ask("SETSLOT", slot, "MIGRATING", to.id)
        self._move_keys(owner, to, keys, slot)
        return owner, to

    def end_move(self, owner: Node, to: Node, slot: int = STORE) -> None:
        """Move the remaining keys; then the slot belongs to the next owner."""
        while self._move_keys(owner, to, 1000, slot):
            pass
        for node in (to, owner, *self.masters):
            node.ask("SETSLOT", slot, "NODE", to.id)

    def move(self, slot: int = STORE) -> Node:
        """Give the slot, with all its keys, to another master; return that one."""
        owner, to = self.begin_move(slot=slot)
        self.end_move(owner, to, slot)
        return to

    def _move_keys(self, owner: Node, to: Node, most: int, slot: int) -> int:
        keys = owner.ask("GETKEYSINSLOT", slot, most)
        if keys:
            within = PATIENCE * 1000  # ms
            owner.client().execute_command("MIGRATE", *to.address, "", 0, within, "KEYS", *keys)
        return len(keys)
