"""A hundred scanners: idle, and with a thousand distinct due times a second."""

import time
from threading import Event

import redis

from tests.lab.benchmarks.apps import QUEUE
from tests.lab.benchmarks.filling import Template, fill
from tests.lab.benchmarks.lab import Lab
from tests.lab.benchmarks.stats import Figures
from tests.support.waiting import eventually

PROCESSES, THREADS = 4, 25
PER_SECOND = 1000


def measure(lab: Lab) -> Figures:
    """Redis's CPU as percent of a core, and the script calls that reach it."""
    server = lab.server
    client = server.client()
    span = lab.scaled(10, 5)
    with (
        lab.app(server.url()) as app,
        lab.scanners(server.url(), PROCESSES, threads=THREADS) as scanning,
    ):
        scanning.start()
        eventually(lambda: app.delayq.counts().scanners == PROCESSES * THREADS, timeout=60)
        Event().wait(6)
        figures = _load(client, "idle", lambda: Event().wait(span))
        start_ms = int((time.time() + 3) * 1000)
        fill(server.socket, Template(app), range(start_ms, start_ms + PER_SECOND * span))
        Event().wait(max(0.0, start_ms / 1000 - time.time()))
        figures |= _load(client, "busy", lambda: Event().wait(span))
        eventually(lambda: client.llen(QUEUE) == PER_SECOND * span, timeout=60)
        scanning.stop()
    return figures


def _load(client: redis.Redis, name: str, run) -> Figures:
    before, started = _used(client), time.perf_counter()
    run()
    after, seconds = _used(client), time.perf_counter() - started
    return {
        f"{name}_redis_cpu_percent": 100 * (after[0] - before[0]) / seconds,
        f"{name}_scripts_per_s": (after[1] - before[1]) / seconds,
        f"{name}_script_us": (after[2] - before[2]) / max(1, after[1] - before[1]),
    }


def _used(client: redis.Redis) -> tuple[float, int, int]:
    cpu = client.info("cpu")
    scripts = client.info("commandstats").get("cmdstat_evalsha", {"calls": 0, "usec": 0})
    return cpu["used_cpu_user"] + cpu["used_cpu_sys"], scripts["calls"], scripts["usec"]
