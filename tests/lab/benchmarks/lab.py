"""The laboratory of a measurement: servers, apps, and helper processes that end with it."""

import contextlib
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import redis
from celery import Celery

from tests.lab.benchmarks import roles
from tests.lab.benchmarks.apps import make_app
from tests.lab.benchmarks.children import Child
from tests.support.rabbit_server import RabbitServer
from tests.support.redis_server import RedisServer
from tests.support.worker import WorkerProcess

TASKS = "tests.lab.benchmarks.tasks"


@dataclass
class Lab:
    """The servers of one run, shared by its measurements.

    Attributes:
        quick: Smaller counts: an hour becomes some minutes, and the figures noisier.
        cache: Where peers' environments are kept.
        largest: The most waiting entries that growth is measured with.
    """

    quick: bool = False
    cache: Path = Path("benchmark-cache")
    largest: int = 1_000_000
    _stack: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    _server: RedisServer | None = None
    _rabbit: RabbitServer | None = None

    def __enter__(self):
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def scaled(self, count: int, quick: int) -> int:
        return quick if self.quick else count

    @property
    def server(self) -> RedisServer:
        """The run's Redis, empty."""
        if self._server is None:
            self._server = self._stack.enter_context(RedisServer())
        client = self._server.client()
        client.flushall()
        client.config_set("slowlog-log-slower-than", 1000)
        client.config_set("slowlog-max-len", 100_000)
        client.slowlog_reset()
        return self._server

    @contextlib.contextmanager
    def another_server(self, *config: str) -> Iterator[RedisServer]:
        """Another Redis, for measurements that need a fresh process or a second server."""
        with RedisServer(*config) as server:
            yield server

    @property
    def rabbit(self) -> RabbitServer:
        if self._rabbit is None:
            self._rabbit = self._stack.enter_context(RabbitServer())
        return self._rabbit

    @contextlib.contextmanager
    def app(self, broker: str, backend: str | None = None, **conf: Any) -> Iterator[Celery]:
        app = make_app(broker, backend, **conf)
        try:
            yield app
        finally:
            app.delayq.close()
            app.close()

    @contextlib.contextmanager
    def scanners(
        self, broker: str, count: int = 1, *, threads: int = 1, **conf: Any
    ) -> Iterator["Scanners"]:
        """*count* processes, each with *threads* scanners, that wait for ``start``."""
        with contextlib.ExitStack() as stack:
            children = [Child(roles.scanner, broker, conf, threads) for _ in range(count)]
            for child in children:
                stack.enter_context(child)
            yield Scanners(children)

    @contextlib.contextmanager
    def workers(self, broker: str, count: int, *options: str) -> Iterator[list[WorkerProcess]]:
        """Real workers on ``tasks.py``, ready."""
        env = {"BENCHMARK_BROKER": broker}
        started: list[WorkerProcess] = []
        with tempfile.TemporaryDirectory() as folder:
            try:
                for number in range(count):
                    log = Path(folder) / f"worker-{number}.log"
                    started.append(WorkerProcess(TASKS, *options, log=log, env=env))
                for worker in started:
                    worker.wait_ready(120)
                yield started
            finally:
                for worker in started:
                    worker.kill()


class Scanners:
    """Scanner processes, started together and stopped together."""

    def __init__(self, children: list[Child]):
        self._children = children
        self.pids = [child.pid for child in children]

    def start(self) -> float:
        """Let them go; return the monotonic time of the signal."""
        started = time.perf_counter()
        for child in self._children:
            child.say("go")
        return started

    def stop(self) -> None:
        for child in self._children:
            child.ask("stop")


def forget_scripts(client: redis.Redis) -> None:
    """Reset the figures of `longest_script_ms` and `script_p99_ms`."""
    client.slowlog_reset()
    client.config_resetstat()


def script_p99_ms(client: redis.Redis) -> float:
    """The p99 of script calls, by Redis's own watch; -1 before Redis 7, which has none."""
    percentiles = client.info("latencystats").get("latency_percentiles_usec_evalsha", {})
    return percentiles["p99"] / 1000 if percentiles else -1


def longest_script_ms(client: redis.Redis) -> float:
    """The longest script call, by Redis's own watch; 0 if under 1 ms.

    The watch runs on while the machine gives the core to another process.
    """
    calls = [
        entry["duration"] / 1000
        for entry in client.slowlog_get(100_000)
        if entry["command"].upper().startswith(b"EVAL")
    ]
    return max(calls, default=0.0)
