"""The servers and processes of one probe, which shares them with no other probe."""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event
from typing import Protocol

from tests.lab.comparison.jobs import RAN
from tests.support.process import ChildProcess
from tests.support.rabbit_server import RabbitServer
from tests.support.redis_server import RedisServer
from tests.support.waiting import eventually
from tests.support.worker import ROOT

STARTED = 90
SHORT_TIMEOUT = 2


class Role(Protocol):
    """A kind of process: its command after ``python -m``, and the line that says it is up."""

    command: tuple[str, ...]
    ready: str


class ShortRabbit(RabbitServer):
    """A broker that soon closes the channel of a worker that holds a message for too long."""

    @property
    def environment(self) -> dict[str, str]:
        name, own = "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS", super().environment
        short = f"-rabbit consumer_timeout {SHORT_TIMEOUT}000 -rabbit channel_tick_interval 1000"
        return {**own, name: f"{own[name]} {short}"}


class Site:
    """A Redis, a RabbitMQ if one is the broker, and the processes started on them.

    Args:
        redis: The server; its database 9 takes the notes of jobs.
        rabbit: The broker of a way that needs one.
        env: Variables of the processes, on top of the servers' addresses.
    """

    def __init__(self, redis: RedisServer, rabbit: RabbitServer | None, **env: str):
        self.env = {
            "COMPARISON_REDIS": redis.url(),
            "COMPARISON_RABBITMQ": rabbit.url if rabbit else "",
            "COMPARISON_NOTES": redis.url(9),
            "COMPARISON_FOLDER": str(redis.folder),
            "PYTHONUNBUFFERED": "1",
            **env,
        }
        self._notes = redis.client(db=9)
        self._folder = Path(redis.folder)
        self._started: list[ChildProcess] = []
        self._count = 0

    def start(self, *roles: Role) -> None:
        """Start a process for each role, and wait until all are up."""
        begun = [(self._begin(role), role) for role in roles]
        for process, role in begun:
            process.wait_log(role.ready, STARTED)

    def _begin(self, role: Role) -> ChildProcess:
        self._count += 1
        command = [part.replace("NUMBER", str(self._count)) for part in role.command]
        log = self._folder / f"process-{self._count}.log"
        process = ChildProcess([sys.executable, "-m", *command], log=log, env=self.env, cwd=ROOT)
        self._started.append(process)
        return process

    def kill(self) -> None:
        """SIGKILL for every process that was started, and its children."""
        for process in self._started:
            process.kill()
        self._started.clear()

    def stop(self) -> None:
        """End every process that was started, as a deployment does."""
        for process in self._started:
            process.stop()
        self._started.clear()

    def memory_mb(self) -> float:
        """The proportional memory of all processes started here."""
        sessions = {process.pid for process in self._started}
        return sum(_pss_mb(pid) for pid in _pids() if _session(pid) in sessions)

    @property
    def ended(self) -> list[str]:
        """The last lines of the processes that ended by themselves."""
        return [one.lines[-1][:100] for one in self._started if not one.running]

    @property
    def ran(self) -> list[tuple[str, float]]:
        """Label and time of every job that ran so far."""
        lines = (line.decode().split() for line in self._notes.lrange(RAN, 0, -1))
        return [(label, float(when)) for label, when in lines]

    def times(self, label: str) -> int:
        return sum(one == label for one, _ in self.ran)

    def wait_ran(self, *labels: str, timeout: float = 30) -> bool:
        """Whether all of them ran in time."""
        try:
            eventually(lambda: {label for label, _ in self.ran} >= set(labels), timeout)
        except AssertionError:
            return False
        return True


@contextmanager
def site(*, rabbit: bool, short: bool = False) -> Iterator[Site]:
    """A site whose addresses are in this process's environment, for the driver that it imports.

    Args:
        rabbit: Whether there is a RabbitMQ as well.
        short: Whether the time-outs of brokers are of SHORT_TIMEOUT seconds.
    """
    env = {"COMPARISON_TIMEOUT": str(SHORT_TIMEOUT)} if short else {}
    with ExitStack() as stack:
        redis = stack.enter_context(RedisServer())
        kind = ShortRabbit if short else RabbitServer
        made = Site(redis, stack.enter_context(kind()) if rabbit else None, **env)
        stack.callback(made.kill)
        os.environ.update(made.env)
        yield made


def pause(seconds: float) -> None:
    """Wait, to see that something does not run."""
    Event().wait(max(0.0, seconds))


def pause_until(when: float) -> None:
    pause(when - time.time())


def _pids() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]


def _session(pid: int) -> int:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return 0


def _pss_mb(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text("ascii").splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024
