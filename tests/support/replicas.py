"""A Redis with replicas, each of them in step when it is given out."""

import contextlib
from collections.abc import Iterator

from tests.support.redis_server import RedisServer
from tests.support.waiting import eventually

# A master that waits for more replicas before it sends its data holds up a test for seconds.
QUICK = ("--repl-diskless-sync-delay", "0")


class Replicated:
    """A master, and how its replicas are."""

    def __init__(self, master: RedisServer, replicas: list[RedisServer]):
        self.master = master
        self.replicas = replicas
        self.client = master.client()

    def in_step(self) -> bool:
        """Whether each replica that runs has all that there is."""
        told = self.client.info("replication")
        heard = [told[f"slave{number}"] for number in range(told["connected_slaves"])]
        return len(heard) == len(self.replicas) and all(
            one["state"] == "online" and one["offset"] == told["master_repl_offset"]
            for one in heard
        )

    def waits(self) -> int:
        """How often the master was asked to wait since it started."""
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
        config: What each server's command line has more.
        binary: Their program.
        port: By which the replicas reach the master, if it is another one than the master's.
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
