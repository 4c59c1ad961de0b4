"""A Redis with replicas, all of them in sync when a test gets it."""

import contextlib
import threading
from collections.abc import Iterator

from tests.support.redis_server import RedisServer
from tests.support.waiting import PATIENCE, eventually

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
        return self._having_all() == len(self.replicas)

    def _having_all(self) -> int:
        told = self.client.info("replication")
        heard = [told[f"slave{number}"] for number in range(told["connected_slaves"])]
        return sum(
            one["state"] == "online" and one["offset"] == told["master_repl_offset"]
            for one in heard
        )

    @contextlib.contextmanager
    def ending_waits(self, replicas: int) -> Iterator[None]:
        """Meanwhile, end each ``WAIT`` as its time would, once so many replicas have all the data.

        So these replicas may take their time, and no call waits for those that never have it.
        """
        over = threading.Event()

        def end() -> bool:
            blocked = [one["id"] for one in self.client.client_list() if "b" in one["flags"]]
            # Looked at after the list, so it includes the writes of these calls.
            if self._having_all() >= replicas:
                for one in blocked:
                    self.client.client_unblock(one)
            return over.is_set()

        thread = threading.Thread(target=eventually, args=(end, 10 * PATIENCE))
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

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
