"""A Redis process of the suite's own: a socket in a temporary folder, and a loopback port."""

import socket
from pathlib import Path

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.support.missing import missing
from tests.support.ports import free_port
from tests.support.process import ChildProcess, ProcessEndedError
from tests.support.redis_programs import default_binary, version_of
from tests.support.server import Server

READY = r"[Rr]eady to accept connections"
ATTEMPTS = 5


def port_config(port: int, tls: Path | None) -> dict[str, str]:
    """A server's port; with the folder *tls* of certificates, one that speaks TLS alone."""
    if tls is None:
        return {"port": str(port)}
    files = {"cert-file": "server.crt", "key-file": "server.key", "ca-cert-file": "ca.crt"}
    return {
        "port": "0",
        "tls-port": str(port),
        "tls-auth-clients": "no",
        "tls-replication": "yes",
        **{f"tls-{name}": f"{tls}/{file}" for name, file in files.items()},
    }


class RedisServer(Server):
    """One server; it keeps its port, socket and folder over a restart.

    Args:
        config: Options of its command line, such as ``"--appendonly", "yes"``.
        binary: Its program; by default the one that this run of the suite tests.
        tls: A folder of `tests.support.certificates`; if given, its port speaks TLS alone.
    """

    def __init__(self, *config: str, binary: str | None = None, tls: Path | None = None):
        self.binary = binary or default_binary() or missing("a Redis server")
        super().__init__()
        self.config = config
        self._tls = tls
        self.socket = str(self.folder / "redis.sock")
        self.port = free_port()
        self._clients: list[redis.Redis] = []

    def _begin(self) -> None:
        for _ in range(ATTEMPTS - 1):
            try:
                return self.start()
            except ProcessEndedError:
                # Another process may have taken the port since the check.
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
        return version_of(self.binary)

    def url(self, db: int = 0) -> str:
        return f"redis://127.0.0.1:{self.port}/{db}"

    def client(self, **options: object) -> redis.Redis:
        """A client that never repeats a command by itself; closed with the server."""
        options.setdefault("retry", Retry(NoBackoff(), 0))
        client = redis.Redis(unix_socket_path=self.socket, **options)
        self._clients.append(client)
        return client

    def empty(self) -> None:
        """Remove every key. A suite asks thousands of times, and a client costs a millisecond."""
        with socket.socket(socket.AF_UNIX) as link:
            link.connect(self.socket)
            link.sendall(b"FLUSHALL\r\n")
            assert link.recv(64) == b"+OK\r\n"

    def _command(self) -> list[str]:
        port = port_config(self.port, self._tls)
        return [
            self.binary,
            *("--bind", "127.0.0.1"),
            *(word for name, value in port.items() for word in (f"--{name}", value)),
            *("--unixsocket", self.socket, "--unixsocketperm", "700"),
            *("--dir", str(self.folder), "--save", "", "--appendonly", "no"),
            *self.config,
        ]
