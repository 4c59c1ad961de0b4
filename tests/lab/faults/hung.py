"""``./tests/run hung``: how long things take while the Redis is refused, silent or stopped.

parent: a Redis, and a proxy to it           child: an app that has called once
                                   <-- "ready" --
        puts the fault in          -- a line --> takes the time of one call
"""

import argparse
import contextlib
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from kombu.exceptions import OperationalError

from celery_delayq.errors import StoreUnavailable
from tests.lab.faults.hung_app import app, delayq, note
from tests.lab.faults.proxy import Proxy
from tests.support.forked import PythonProcess
from tests.support.process import ChildProcess, ProcessEndedError
from tests.support.redis_programs import redis_binaries
from tests.support.redis_server import RedisServer
from tests.support.worker import ROOT, WorkerProcess

README = Path(__file__).with_name("README.md")
BEGIN, END = "<!-- the table of ./tests/run hung -->", "<!-- the end of that -->"
MOST = 60  # seconds; the run does not wait longer than that
AT_ONCE = 4
MANY = 1000
APP = "tests.lab.faults.hung_app"
WELL, REFUSED, SILENT, STOPPED = "well", "refused", "silent", "stopped"
TIMEOUTS = (5, 1)  # delayq_timeout: the default, and a short one
COLUMNS = ((WELL, 5), *((fault, one) for fault in (REFUSED, SILENT, STOPPED) for one in TIMEOUTS))

CALLS: dict[str, Callable[[], object]] = {
    "`delay_for`": lambda: note.delay_for(60, 1),
    "`apply_async`, of a task without a time": lambda: note.apply_async((1,)),
    "the same, with `socket_timeout` 1": lambda: note.apply_async((1,)),
    "`cancel`": lambda: delayq.cancel("first"),
    "`get`": lambda: delayq.get("first"),
    f"`schedule_many`, of {MANY:,}": lambda: delayq.schedule_many(
        note, [((number,), {}) for number in range(MANY)], after=60
    ),
}
START, STOP, SCAN = "a worker's start", "a worker's stop", "a stop of `delayq scan`"
WORKERS = tuple(
    f"{what}, with the broker {where}"
    for what in (START, STOP, SCAN)
    for where in ("elsewhere", "there")
)


@dataclass(frozen=True)
class Took:
    """How long it took, and the error that ended it, if any; no time: longer than the limit."""

    seconds: float | None
    error: str = ""

    def __str__(self) -> str:
        seconds = f"over {MOST}" if self.seconds is None else f"{self.seconds:.1f}"
        return f"{seconds} {self.error}".strip()


class Store:
    """A Redis that can fail in each of the ways, and the port at which clients reach it."""

    def __init__(self, fault: str):
        self._fault = fault
        self._server = RedisServer()
        self._proxy: Proxy | None = None

    def __enter__(self):
        self._server.__enter__()
        if self._fault in (REFUSED, SILENT):
            self._proxy = Proxy(self._server.port).__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        if self._proxy is not None:
            self._proxy.__exit__(*error)
        self._server.__exit__(*error)

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{(self._proxy or self._server).port}/0"

    def spoil(self) -> None:
        if self._fault == REFUSED:
            self._proxy.refuse()
        elif self._fault == SILENT:
            self._proxy.stall()
        elif self._fault == STOPPED:
            self._server.pause()


def measured(what: str, fault: str, timeout: float) -> Took:
    with Store(fault) as store:
        if what in CALLS:
            return _call(what, store, timeout)
        with RedisServer() as elsewhere:
            broker = store.url if what.endswith("there") else elsewhere.url()
            conf = {"broker_url": broker, "delayq_url": store.url, "delayq_timeout": timeout}
            return _worker(what, store, {**conf, "worker_hijack_root_logger": True})


def _call(what: str, store: Store, timeout: float) -> Took:
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.lab.faults.hung", "--child", what, store.url, str(timeout)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert child.stdout.readline() == "ready\n"
        store.spoil()
        said, _ = child.communicate("\n", timeout=MOST)
        return Took(**json.loads(said))
    except subprocess.TimeoutExpired:
        return Took(None)
    finally:
        child.kill()
        child.communicate()


def child(what: str, url: str, timeout: str) -> None:
    """The process whose call is measured."""
    app.conf.update(broker_url=url, delayq_timeout=float(timeout))
    if "socket_timeout" in what:
        app.conf.broker_transport_options = {"socket_timeout": 1}
    while not delayq.get("first"):
        with contextlib.suppress(StoreUnavailable):  # a second may be too short for a busy machine
            note.s(1).set(task_id="first").delay_for(60)
    note.apply_async((0,))
    print("ready", flush=True)
    sys.stdin.readline()
    started, error = time.monotonic(), ""
    try:
        CALLS[what]()
    except Exception as raised:
        # Callers catch this around `apply_async` anyway, so it needs no name in the table.
        error = "!" if isinstance(raised, OperationalError) else type(raised).__name__
    print(json.dumps({"seconds": time.monotonic() - started, "error": error}), flush=True)


def _worker(what: str, store: Store, conf: dict[str, object]) -> Took:
    is_start = what.startswith(START)
    env = {"DELAYQ_HUNG_CONF": json.dumps(conf)}
    with _log() as log:
        if is_start:
            store.spoil()
        started = time.monotonic()
        worker = _started(what, log, env)
        try:
            if not what.startswith(SCAN):
                worker.wait_ready(MOST)
            if not is_start:
                worker.wait_log("scanner .* started", MOST)
                store.spoil()
                started = time.monotonic()
                worker.stop(signal.SIGTERM, MOST)
        except ProcessEndedError:
            return Took(None)
        finally:
            took = time.monotonic() - started
            worker.kill()
        return Took(took)


def _started(what: str, log: Path, env: dict[str, str]) -> ChildProcess:
    if not what.startswith(SCAN):
        return WorkerProcess(APP, "-P", "solo", log=log, env=env)
    line = ("-m", "celery", "-A", APP, "delayq", "scan")
    return PythonProcess(*line, log=log, env=env, cwd=ROOT)


@contextlib.contextmanager
def _log() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="delayq-hung-") as folder:
        yield Path(folder, "worker.log")


def main() -> int:
    parser = argparse.ArgumentParser(prog="./tests/run hung", description=__doc__)
    parser.add_argument("words", nargs="*", help="rows with these words alone")
    parser.add_argument("--write", action="store_true", help="put the table into README.md")
    options = parser.parse_args()
    # By default SIGTERM skips every clean-up; so it becomes an orderly end.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    rows = [what for what in (*CALLS, *WORKERS) if all(word in what for word in options.words)]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        jobs = {
            (what, column): pool.submit(measured, what, *column)
            for what in rows
            for column in COLUMNS
        }
        lines = [[what, *(str(jobs[what, one].result()) for one in COLUMNS)] for what in rows]
    text = _table(lines)
    print(text)
    if options.write:
        before, rest = README.read_text(encoding="utf-8").split(BEGIN)
        README.write_text(f"{before}{BEGIN}\n{text}\n{END}{rest.split(END)[1]}", encoding="utf-8")
    return 0


def _table(lines: list[list[str]]) -> str:
    heads = ["seconds", WELL, *(f"{fault}, {timeout} s" for fault, timeout in COLUMNS[1:])]
    lines = [heads, ["---", *["---:"] * len(COLUMNS)], *lines]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    machine = (
        f"{os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}, "
        f"Redis {redis_binaries()[0][0]}"
    )
    return f"On {machine}.\n\n{table}"


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(*sys.argv[2:])
    else:
        sys.exit(main())
