"""A worker's start and memory, beside a worker in an environment without the package.

Wherever the package is installed, ``celery`` also loads its commands, for any app.
"""

import statistics
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path
from threading import Event

from tests.lab.benchmarks.environments import python_with
from tests.lab.benchmarks.lab import Lab
from tests.lab.benchmarks.stats import Figures
from tests.support.process import ChildProcess
from tests.support.worker import QUIET, READY, ROOT

SETTLED = 2.0  # seconds from "ready" until the memory is read; the first scan is over by then
PLAIN = ("celery", "kombu", "redis", "packaging")
SAME = [f"{name}=={metadata.version(name)}" for name in PLAIN]  # as in this environment


def measure(lab: Lab) -> Figures:
    """Medians of six workers of each kind, one kind after the other; two processes each."""
    kinds = {
        "plain": (python_with(lab.cache, "plain-celery", *SAME), {}),
        "delayq": (sys.executable, {"BENCHMARK_DELAYQ": "1"}),
    }
    url = lab.server.url()
    seen: dict[str, list[float]] = {}
    for turn in range(lab.scaled(6, 3) + 1):
        for kind, (python, env) in kinds.items():
            found = _started(python, {"BENCHMARK_BROKER": url, **env})
            # The first of each kind compiles its modules.
            for name, value in found.items() if turn else ():
                seen.setdefault(f"{kind}_{name}", []).append(value)
    return {name: statistics.median(values) for name, values in seen.items()}


def _started(python: str, env: dict[str, str]) -> dict[str, float]:
    command = [python, "-m", "celery", "-A", "tests.lab.benchmarks.starting", "worker"]
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        worker = ChildProcess(
            [*command, "-l", "INFO", "-c", "1", *QUIET],
            log=Path(folder) / "worker.log",
            env=env,
            cwd=ROOT,
        )
        try:
            worker.wait_log(READY, 120)
            seconds = time.monotonic() - began
            Event().wait(SETTLED)
            memory = _memory(worker.pid)
            worker.stop(timeout=120)
        finally:
            worker.kill()
    return {"start_s": seconds, **memory}


def _memory(pid: int) -> dict[str, float]:
    """MB of a worker and its child: RSS, and PSS, which counts a shared page once."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii").split()
    totals = {"rss_mb": 0.0, "pss_mb": 0.0}
    for process in (pid, *map(int, children)):
        for line in Path(f"/proc/{process}/smaps_rollup").read_text("ascii").splitlines():
            name, _, rest = line.partition(":")
            if (figure := f"{name.lower()}_mb") in totals:
                totals[figure] += int(rest.split()[0]) * 1024 / 1e6
    return totals
