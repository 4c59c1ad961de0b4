"""Start of execution in a real worker, beside native Celery ETA in the same worker."""

import random
import time
from datetime import datetime, timezone

from tests.lab.benchmarks.lab import Lab
from tests.lab.benchmarks.names import STARTS
from tests.lab.benchmarks.stats import Figures, lateness, percentile
from tests.support.waiting import eventually


def measure(lab: Lab) -> Figures:
    """200 tasks of each kind, due at random instants, with one worker and with ten."""
    figures: Figures = {}
    for workers in (1,) if lab.quick else (1, 10):
        found = _starts(lab, workers)
        for kind, late in found.items():
            figures |= lateness(f"{kind}_workers_{workers}", late)
        later = percentile(found["delayq"], 50) - percentile(found["native"], 50)
        figures[f"later_workers_{workers}_ms"] = later
    return figures


def _starts(lab: Lab, workers: int) -> dict[str, list[float]]:
    server = lab.server
    client = server.client()
    count, span = lab.scaled(200, 100), lab.scaled(20, 5)
    with lab.app(server.url()) as app, lab.workers(server.url(), workers, "-c", "1"):
        stamp = app.signature("bench.stamp")
        first = int((time.time() + 3) * 1000)
        for due_ms in random.sample(range(first, first + span * 1000), count):
            stamp.clone(args=("delayq", due_ms)).delay_until(due_ms / 1000)
            eta = datetime.fromtimestamp((due_ms + 1) / 1000, timezone.utc)
            stamp.clone(args=("native", due_ms + 1)).apply_async(eta=eta)
        eventually(lambda: client.llen(STARTS) == 2 * count, timeout=span + 60)
        found: dict[str, list[float]] = {"delayq": [], "native": []}
        for line in client.lrange(STARTS, 0, -1):
            kind, _, late = line.decode().partition(":")
            found[kind].append(float(late))
    return found
