"""What the package puts into processes: code, memory, time; what a task that never waits passes.

A small app is started with it, and without it in an environment that lacks it, in turn.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from signal import SIGUSR2
from threading import Event
from typing import Any

from celery import Celery

import celery_delayq
from tests.lab.benchmarks.environments import python_with
from tests.lab.benchmarks.lab import Lab
from tests.lab.benchmarks.measures.worker_start import SAME, SETTLED
from tests.lab.benchmarks.stats import Figures
from tests.lab.benchmarks.weighed import HUNDRED, lines_of, memory_mb, noop, tell
from tests.support.process import ChildProcess
from tests.support.redis_server import RedisServer
from tests.support.waiting import eventually
from tests.support.worker import QUIET, READY, ROOT

APP = "tests.lab.benchmarks.weighed"


@dataclass(frozen=True)
class Kind:
    """An environment, and what the app finds there."""

    python: str
    env: dict[str, str]


def measure(lab: Lab) -> Figures:
    """Medians of six starts of each kind, one kind after the other; then what is counted."""
    ours = Kind(sys.executable, {"BENCHMARK_DELAYQ": "1"})
    kinds = {"plain": Kind(python_with(lab.cache, "plain-celery", *SAME), {}), "delayq": ours}
    seen: dict[str, list[float]] = {}
    for turn in range(lab.scaled(6, 3) + 1):
        for name, kind in kinds.items():
            found = {**_call(lab, kind), **_worker(lab, kind)}
            # The first of each kind compiles its modules.
            for figure, value in found.items() if turn else ():
                seen.setdefault(f"{name}_{figure}", []).append(value)
    files = [*Path(celery_delayq.__file__).parent.rglob("*.py")]
    return {
        **{figure: statistics.median(values) for figure, values in seen.items()},
        "all_modules": len(files),
        "all_lines": sum(map(lines_of, files)),
        **_passed(lab, ours),
    }


def _call(lab: Lab, kind: Kind) -> dict[str, float]:
    """A process that imports the app and makes its first call."""
    with tempfile.TemporaryDirectory() as folder:
        told = Path(folder, "told")
        env = {"BENCHMARK_BROKER": lab.server.url(), **kind.env}
        began = time.monotonic()
        subprocess.run([kind.python, "-m", APP, told], check=True, cwd=ROOT, env=env, timeout=120)
        seconds = time.monotonic() - began
        figures = _read(told)
        names = ("memory_mb", "modules", "lines")
        return {"call_s": seconds, **{f"call_{name}": figures[name] for name in names}}


def _worker(lab: Lab, kind: Kind) -> dict[str, float]:
    """A worker with two children that has run no task."""
    server = lab.server
    with tempfile.TemporaryDirectory() as folder, server.client() as client:
        before = len(client.client_list())
        began = time.monotonic()
        with _started(server, kind, Path(folder), 2) as worker:
            seconds = time.monotonic() - began
            Event().wait(SETTLED)
            status = Path(f"/proc/{worker.pid}/status").read_text("ascii")
            children = Path(f"/proc/{worker.pid}/task/{worker.pid}/children").read_text("ascii")
            connections = len(client.client_list()) - before
            child_mb = statistics.mean(memory_mb(pid) for pid in children.split())
            main_mb = memory_mb(worker.pid)
            told = _told(worker, Path(folder, "main"))
        return {
            "worker_s": seconds,
            "worker_main_mb": main_mb,
            "worker_child_mb": child_mb,
            "worker_modules": told["modules"],
            "worker_lines": told["lines"],
            "worker_threads": float(status.partition("Threads:")[2].split()[0]),
            "worker_connections": connections,
        }


@contextmanager
def _started(
    server: RedisServer, kind: Kind, folder: Path, children: int
) -> Iterator[ChildProcess]:
    """A worker, ready. Its main process tells on SIGUSR2."""
    env = {"BENCHMARK_BROKER": server.url(), "BENCHMARK_TOLD": str(folder / "main")}
    worker = ChildProcess(
        [
            *(kind.python, "-m", "celery", "-A", APP),
            *("worker", "-l", "INFO", "-c", f"{children}", *QUIET),
        ],
        log=folder / "worker.log",
        env={**env, **kind.env},
        cwd=ROOT,
    )
    try:
        worker.wait_log(READY, 120)
        yield worker
        worker.stop(timeout=120)
    finally:
        worker.kill()


def _told(worker: ChildProcess, path: Path) -> dict[str, Any]:
    """What the worker's main process has loaded and entered so far."""
    path.unlink(missing_ok=True)
    worker.signal(SIGUSR2)
    eventually(path.exists)
    return _read(path)


def _read(path: Path) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return read


def _passed(lab: Lab, kind: Kind) -> dict[str, float]:
    """How many of the package's functions, and scripts in Redis, each of 100 tasks enters."""
    with tempfile.TemporaryDirectory() as folder:
        counted = Kind(kind.python, {**kind.env, "BENCHMARK_COUNTED": f"{folder}/sender"})
        _call(lab, counted)
        sender = _read(Path(folder, "sender"))["entered"]
        server = lab.server  # without the tasks that were sent
        with _started(server, counted, Path(folder), 1) as worker:
            main, child, scripts = _of_a_worker(server, worker, Path(folder))
    places = {"sender": sender, "main": main, "child": child, "scripts": scripts}
    return {
        f"passed_{place}": sum(times >= HUNDRED for times in entered.values())
        for place, entered in places.items()
    }


def _of_a_worker(server: RedisServer, worker: ChildProcess, folder: Path) -> list[Counter[str]]:
    """What 100 tasks entered in the worker's main process, in its child, and in Redis."""
    # The tasks come from a process without a DelayQ; the worker gets the same messages.
    with server.client() as client, Celery(broker=server.url()) as app:

        def entered() -> list[Counter[str]]:
            child = folder / "child"
            child.unlink(missing_ok=True)
            app.send_task(tell.name, (str(child),))
            eventually(child.exists)
            scripts = {
                command: figures["calls"]
                for command, figures in client.info("commandstats").items()
                if command.startswith(("cmdstat_eval", "cmdstat_fcall"))
            }
            main = _told(worker, folder / "main")["entered"]
            return [*map(Counter, (main, _read(child)["entered"], scripts))]

        before = entered()
        for _ in range(HUNDRED):
            app.send_task(noop.name)
        after = entered()
    return [now - then for then, now in zip(before, after, strict=True)]
