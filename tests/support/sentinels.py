"""A Redis Sentinel group of the suite's own: a master, its replicas, and three that watch them.

    client --where is the master?--> sentinels --watch--> master ---> replicas
       '----------------------------------------------------^

Everything listens on loopback. Sentinels and replicas have logins of their own on the nodes, so
a node can be hidden from them while clients still reach it: a network that is split.
"""

import contextlib
import secrets
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import redis

from tests.support.ports import free_port
from tests.support.process import ChildProcess, ProcessEndedError
from tests.support.redis_server import ATTEMPTS, RedisServer, port_config
from tests.support.server import Server
from tests.support.waiting import PATIENCE, eventually

NAME = "mymaster"
MARKS = 9  # a write to this database shows whether replicas have caught up
ELECTED = 40.0  # seconds in which there has to be a new master
HEALED = 40.0

WATCHER, COPIER = ("watcher", "secret of watchers"), ("copier", "secret of copiers")
RIGHTS = ("~*", "&*", "+@all")

# ms; the sentinels' own periods are longer. Redis 6.2 has no way to change them.
PERIODS = {
    # A replica is not promoted if its last report is older than three periods of one second.
    "info-period": 1000,
    # Nor is it promoted if its last answer is older than five periods.
    "ping-period": 400,
    "ask-period": 100,
    # A stray master is demoted after four periods. If they were shorter, one sentinel would undo
    # the failover of another, which looks once a second.
    "publish-period": 1000,
    "tilt-period": 1000,
    "min-link-reconnect-period": 500,
}
# ms; the second is for periods in seconds. If a node is pinged less often than it has to answer, it
# counts as down at once.
DOWN_AFTER = (1000, 2500)
FAILOVER_TIMEOUT = (2000, 4000)


@dataclass(frozen=True)
class Switch:
    """A sentinel's message that names the new master. *at* is by the monotonic clock."""

    at: float
    port: int
    sentinel: int


class Node(RedisServer):
    """One Redis of a group; *of* is the port of the master that it copies, at its start."""

    def __init__(
        self,
        *config: str,
        binary: str | None = None,
        of: int | None = None,
        password: str = "",
        tls: Path | None = None,
    ):
        super().__init__(*config, binary=binary, tls=tls)
        self._of = of
        self._password = password

    def client(self, **options: object) -> redis.Redis:
        return super().client(**{"password": self._password or None, **options})

    def empty(self) -> None:
        self.client().flushall()

    def info(self) -> dict:
        """Its report on replication; empty if its links were just closed."""
        with self.client() as client, contextlib.suppress(redis.ConnectionError):
            return client.info("replication")
        return {"role": None}

    def _command(self) -> list[str]:
        command = super()._command()
        for name, password in (WATCHER, COPIER):
            command += ["--user", name, "on", f">{password}", *RIGHTS]
        command += ["--masteruser", COPIER[0], "--masterauth", COPIER[1]]
        command += ["--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1"]
        if self._password:
            command += ["--requirepass", self._password]
        if self._of:
            command += ["--replicaof", "127.0.0.1", str(self._of)]
        return command


class SentinelServer(Server):
    """One sentinel.

    Args:
        binary: The server's program, which the option --sentinel makes a sentinel.
        config: The lines of its file, given its port and identity.
        password: Its own.
    """

    def __init__(self, binary: str, *, password: str = "", tls: Path | None = None):
        super().__init__()
        self.binary = binary
        self.port = free_port()
        self.identity = secrets.token_hex(20)
        self.socket = str(self.folder / "sentinel.sock")
        self._password, self._tls = password, tls
        self._clients: list[redis.Redis] = []

    def write(self, lines: Sequence[str]) -> None:
        own = [
            *(f"{name} {value}" for name, value in port_config(self.port, self._tls).items()),
            "bind 127.0.0.1",
            f"unixsocket {self.socket}",
            f"dir {self.folder}",
            f"sentinel myid {self.identity}",
            "sentinel resolve-hostnames no",
        ]
        if self._password:
            own += [f'requirepass "{self._password}"', f'sentinel sentinel-pass "{self._password}"']
        (self.folder / "sentinel.conf").write_text("\n".join([*own, *lines, ""]), encoding="utf-8")

    def start(self) -> None:
        command = [self.binary, str(self.folder / "sentinel.conf"), "--sentinel"]
        self._process = ChildProcess(command, log=self.folder / "sentinel.log")
        self._process.wait_log(rf"\+monitor master {NAME}")
        # The log comes before the socket is open.
        eventually(self._answers)

    def _answers(self) -> bool:
        if not self.running:
            raise ProcessEndedError("a sentinel ended", self._process)
        with contextlib.suppress(redis.ConnectionError):
            return self.client().ping()
        return False

    def hurry(self) -> bool:
        """Let it check its nodes several times a second; return whether it supports that."""
        try:
            for name, period in PERIODS.items():
                self.ask("DEBUG", name, period)
        except redis.ResponseError:
            return False
        return True

    def client(self, **options: object) -> redis.Redis:
        options = {"password": self._password or None, **options}
        client = redis.Redis(unix_socket_path=self.socket, **options)
        self._clients.append(client)
        return client

    def ask(self, *words: object) -> object:
        """The answer to ``SENTINEL`` with these words."""
        with redis.Redis(
            unix_socket_path=self.socket,
            password=self._password or None,
            decode_responses=True,
            socket_timeout=PATIENCE,
            protocol=2,
        ) as client:
            # Without redis-py's parsing, which differs between versions.
            client.response_callbacks.clear()
            return client.execute_command("SENTINEL", *words)

    def facts(self) -> dict[str, str]:
        return _pairs(self.ask("MASTER", NAME))

    def replicas(self) -> list[dict[str, str]]:
        return [_pairs(one) for one in self.ask("REPLICAS", NAME)]

    def close(self) -> None:
        for client in self._clients:
            client.close()
        super().close()


def _pairs(flat: list[str]) -> dict[str, str]:
    return dict(zip(flat[::2], flat[1::2], strict=True))


class SentinelGroup:
    """A master, its replicas, and three sentinels; in full order when ``with`` is entered.

    Args:
        config: Options of the nodes' command line.
        replicas: How many.
        binary: The program of all servers.
        password: Of the user ``default`` on the nodes.
        sentinel_password: Of the sentinels.
        tls: A folder of `tests.support.certificates`; if given, every connection uses TLS.
    """

    def __init__(
        self,
        *config: str,
        replicas: int = 2,
        binary: str | None = None,
        password: str = "",
        sentinel_password: str = "",
        tls: Path | None = None,
    ):
        self.nodes: list[Node] = []
        self.sentinels: list[SentinelServer] = []
        self.switches: list[Switch] = []
        self.password, self.sentinel_password, self.tls = password, sentinel_password, tls
        self._config, self._binary, self._replicas = config, binary, replicas
        self._hurries = True
        self._news = threading.Condition()
        self._over = threading.Event()
        self._hidden: set[int] = set()
        self._stopped: list[Server] = []
        self._stack = contextlib.ExitStack()

    def __enter__(self):
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._stack.close()

    def _start(self) -> None:
        self.nodes.append(self._stack.enter_context(self._node()))
        copies = [self._node(of=self.nodes[0].port) for _ in range(self._replicas)]
        with ThreadPoolExecutor() as threads:
            self.nodes += threads.map(self._stack.enter_context, copies)
        for _ in range(ATTEMPTS - 1):
            with contextlib.suppress(ProcessEndedError):  # another process may have taken a port
                self._watch()
                break
        else:
            self._watch()
        self.wait_healthy()

    def _node(self, **options: object) -> Node:
        return Node(
            *self._config, binary=self._binary, password=self.password, tls=self.tls, **options
        )

    def _watch(self) -> None:
        made = [
            SentinelServer(self.nodes[0].binary, password=self.sentinel_password, tls=self.tls)
            for _ in range(3)
        ]
        for one in made:
            # Each gets the others and the replicas in its file; by itself it would need seconds.
            others = (other for other in made if other is not one)
            one.write([*self._file(), *(_known_sentinel(other) for other in others)])
        with ThreadPoolExecutor() as threads:
            self.sentinels = list(threads.map(self._stack.enter_context, made))
        for number, one in enumerate(self.sentinels):
            self._hurries = one.hurry() and self._hurries
            listening = threading.Event()
            arguments = (number, one.client(), listening)
            threading.Thread(target=self._listen, args=arguments, daemon=True).start()
            assert listening.wait(30)
        for one in self.sentinels:
            one.ask("SET", NAME, "failover-timeout", FAILOVER_TIMEOUT[not self._hurries])
        self.wait_with(self.down_after)

    def _file(self) -> Iterator[str]:
        yield f"sentinel monitor {NAME} 127.0.0.1 {self.nodes[0].port} 2"
        yield f"sentinel parallel-syncs {NAME} 1"
        yield f"sentinel auth-user {NAME} {WATCHER[0]}"
        yield f'sentinel auth-pass {NAME} "{WATCHER[1]}"'
        for node in self.nodes[1:]:
            yield f"sentinel known-replica {NAME} 127.0.0.1 {node.port}"

    def _listen(self, number: int, client: redis.Redis, listening: threading.Event) -> None:
        with (
            contextlib.suppress(redis.ConnectionError, ValueError, OSError),
            client.pubsub() as channel,
        ):
            channel.subscribe("+switch-master")
            while not self._over.is_set():
                message = channel.get_message(timeout=0.2)
                if message and message["type"] == "subscribe":
                    listening.set()
                elif message:
                    self._note(number, int(message["data"].split()[-1]))

    def _note(self, sentinel: int, port: int) -> None:
        with self._news:
            self.switches.append(Switch(time.monotonic(), port, sentinel))
            self._news.notify_all()

    # Addresses for clients.

    def url(self, db: int = 0, login: str = "", sentinels: Sequence[int] = (0, 1, 2)) -> str:
        """A URL for kombu and Celery; *login* is ``user:password@``, with the nodes' by default."""
        login = login or (f":{self.password}@" if self.password else "")
        ports = [self.sentinels[number].port for number in sentinels]
        return ";".join(f"sentinel://{login}127.0.0.1:{port}/{db}" for port in ports)

    @property
    def options(self) -> dict:
        """Transport options."""
        return self.asking_for(PATIENCE)

    def asking_for(self, seconds: float) -> dict:
        """The same, with so many seconds for a sentinel's answer: few, if one of them is silent."""
        asked: dict = {"socket_timeout": seconds}
        if self.sentinel_password:
            asked["password"] = self.sentinel_password
        if self.tls:
            asked |= {"ssl": True, "ssl_ca_certs": f"{self.tls}/ca.crt"}
        return {"master_name": NAME, "sentinel_kwargs": asked}

    # The roles of the nodes.

    @property
    def master(self) -> Node:
        """The master, according to most of the sentinels that answer."""
        ports = [one.facts()["port"] for one in self._asked()]
        return self._by_port(int(max(ports, key=ports.count)))

    @property
    def replicas(self) -> list[Node]:
        master = self.master
        return [node for node in self.nodes if node is not master]

    def _by_port(self, port: int) -> Node:
        return next(node for node in self.nodes if node.port == port)

    def _asked(self) -> list[SentinelServer]:
        return [one for one in self.sentinels if one.running and one not in self._stopped]

    def catch_up(self) -> None:
        """Wait until every replica has all the data of the master."""
        copies = len(self.nodes) - 1
        with self.master.client(db=MARKS) as client:
            # WAIT covers the writes of this very connection, and everything before them.
            client.incr("mark")
            assert client.wait(copies, 20_000) >= copies

    # Faults.

    def kill_master(self) -> Node:
        """SIGKILL: its links close, and its port refuses connections."""
        victim = self.master
        victim.kill()
        return victim

    def failover(self) -> Node:
        """``SENTINEL FAILOVER``; return the old master."""
        victim = self.master
        eventually(self._begins_failover, HEALED, "a failover begins")
        return victim

    def _begins_failover(self) -> bool:
        with contextlib.suppress(redis.ResponseError):
            return self._asked()[0].ask("FAILOVER", NAME) == "OK"
        return False

    def silence(self, server: Server) -> None:
        """Silence it: it keeps its connections, accepts new ones, and answers nothing."""
        self._stopped.append(server)
        server.pause()

    def restore(self, server: Server) -> None:
        """End the silence. It now runs the commands that it received meanwhile."""
        server.resume()
        self._stopped.remove(server)

    def hide(self, node: Node) -> None:
        """Split the network: it sees neither sentinels nor replicas, and clients go on.

        Their logins are turned off, so there has to be a password: without one, they get in anyway.
        """
        assert self.password
        self._hidden.add(node.port)
        for name, _ in (WATCHER, COPIER):
            node.client().acl_setuser(name, enabled=False)
            node.client().execute_command("CLIENT", "KILL", "USER", name)

    def show(self, node: Node) -> None:
        """End the split."""
        self._hidden.discard(node.port)
        with node.client() as client:
            for name, _ in (WATCHER, COPIER):
                client.acl_setuser(name, enabled=True)
            own = client.client_id()
            for one in client.client_list():
                # A sentinel whose login fails keeps trying without a message.
                if not one["name"] and int(one["id"]) != own:
                    client.client_kill_filter(_id=one["id"])

    @property
    def down_after(self) -> int:
        """Milliseconds without an answer, after which a sentinel takes a node for down."""
        return DOWN_AFTER[not self._hurries]

    def wait_with(self, down_after: int) -> None:
        """Set these milliseconds."""
        for one in self.sentinels:
            one.ask("SET", NAME, "down-after-milliseconds", down_after)

    def elected(self, old: Node, since: int = 0) -> tuple[Node, float]:
        """Wait for another master than *old*; returns it, and when the first sentinel said so.

        Args:
            old: The previous master.
            since: How many `switches` there were before.
        """

        def found() -> Switch | None:
            return next((one for one in self.switches[since:] if one.port != old.port), None)

        with self._news:
            assert self._news.wait_for(found, ELECTED), "no new master was elected"
            switch = found()
        return self._by_port(switch.port), switch.at

    # Recovery.

    def heal(self) -> None:
        """Start killed servers, resume stopped ones, and wait until all is in order."""
        for server in list(self._stopped):
            self.restore(server)
        for server in (*self.nodes, *self.sentinels):
            if not server.running:
                server.start()
                if isinstance(server, SentinelServer):
                    server.hurry()
        for node in self.nodes:
            if node.port in self._hidden:
                self.show(node)
        self.agree()
        master = self.master
        for node in self.nodes:
            if node is not master:
                # They would do so themselves, in ten seconds.
                node.client().replicaof("127.0.0.1", master.port)
        self.wait_healthy()

    def agree(self) -> None:
        """Wait until each sentinel names the same master; one that lags names the one before."""
        eventually(self._is_agreed, HEALED, "the sentinels agree")

    def wait_healthy(self) -> None:
        eventually(lambda: not list(self._complaints()), HEALED, "the group is in order")

    def _is_agreed(self) -> bool:
        facts = [one.facts() for one in self.sentinels]
        return (
            len({one["port"] for one in facts}) == 1
            and all(one["flags"] == "master" for one in facts)
            and self.master.info()["role"] == "master"
        )

    def _complaints(self) -> Iterator[str]:
        if not self._is_agreed():
            yield "no agreed master"
            return
        master = self.master
        # A master that requires replicas may not know yet that they are in step.
        if not master.info().get("min_slaves_good_slaves", True):
            yield "the master lacks good replicas"
        for node in self.nodes:
            info = node.info()
            if node is not master and (
                info["role"] != "slave"
                or info["master_port"] != master.port
                or info["master_link_status"] != "up"
            ):
                yield f"{node.port} is no replica yet"
        for one in self.sentinels:
            yield from self._complaints_of(one, master)

    def _complaints_of(self, one: SentinelServer, master: Node) -> Iterator[str]:
        if int(one.facts()["num-other-sentinels"]) != len(self.sentinels) - 1:
            yield "a sentinel knows not all others"
        good = {
            int(replica["port"])
            for replica in one.replicas()
            if replica["flags"] == "slave"
            and replica["master-link-status"] == "ok"
            and int(replica["master-port"]) == master.port
        }
        if good != {node.port for node in self.nodes} - {master.port}:
            yield "a sentinel knows not all replicas"


def _known_sentinel(other: SentinelServer) -> str:
    return f"sentinel known-sentinel {NAME} 127.0.0.1 {other.port} {other.identity}"
