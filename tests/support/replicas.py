"""A Redis with replicas, all of them in sync when a test gets it."""

import contextlib
from collections.abc import Iterator

from tests.support.redis_server import RedisServer
from tests.support.waiting import eventually

# A master that waits for more replicas before it sends its data holds up a test for seconds.
QUICK = ("--repl-diskless-sync-delay", "0")


class Replicated:
    """A master, and the state of its replicas."""

    def __init__(self, master: RedisServer, replicas: list[RedisServer]):
        self.master = master
        self.replicas = replicas
        self.client = master.client()

    def in_step(self) -> bool:
        """Whether each running replica has all the data."""
        told = self.client.info("replication")
        heard = [told[f"slave{number}"] for number in range(told["connected_slaves"])]
        return len(heard) == len(self.replicas) and all(
            one["state"] == "online" and one["offset"] == told["master_repl_offset"]
            for one in heard
        )

    def waits(self) -> int:
        """How many ``WAIT`` commands the master got since it started."""
        told = self.client.info("commandstats")
        return sum(
            told.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("wait", "waitaof")
        )


@contextlib.contextmanager
def replicated(
    replicas: int = 1, *config: str, binary: str | None = None, port: int | None = None
) -> Iterator[Replicated]:
    """Start a master and its replicas.

    Args:
        replicas: How many.
        config: More options of each server's command line.
        binary: Their program.
        port: The port by which the replicas reach the master, if it is not the master's own.
    """
    with contextlib.ExitStack() as stack:
        master = stack.enter_context(RedisServer(*QUICK, *config, binary=binary))
        where = ("--replicaof", "127.0.0.1", str(port or master.port))
        started = [
            stack.enter_context(RedisServer(*where, *config, binary=binary))
            for _ in range(replicas)
        ]
        made = Replicated(master, started)
        eventually(made.in_step)
        yield made
