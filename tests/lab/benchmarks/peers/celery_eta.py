"""Native Celery: ``apply_async(eta=...)``. Nothing moves; a worker holds early tasks."""

import random
import time
from datetime import datetime, timezone

from tests.lab.benchmarks.lab import Lab
from tests.lab.benchmarks.measures.idle import commands_sent
from tests.lab.benchmarks.names import STARTS
from tests.lab.benchmarks.stats import Figures, lateness
from tests.support.waiting import eventually

LATENESS = 100


def figures(lab: Lab, schedule: int, drain: int, idle: int) -> Figures:
    """Rates of scheduling, and of executing tasks that fell due at one instant; an idle worker."""
    server = lab.server
    client = server.client()
    with lab.app(server.url()) as app:
        far = _time(time.time() + 86_400)
        started = time.perf_counter()
        for _ in range(schedule):
            app.noop.apply_async((1, 2), eta=far, queue="far")
        rate = schedule / (time.perf_counter() - started)
        client.flushall()
        with lab.workers(server.url(), 1, "-c", "1"):
            commands = commands_sent(server, idle)
            instant = time.time() + 5 + drain / 500
            stamp = app.signature("bench.stamp", ("native", int(instant * 1000)))
            for _ in range(drain):
                stamp.clone().apply_async(eta=_time(instant))
            eventually(lambda: client.hlen("unacked") == drain, timeout=60)
            assert time.time() < instant, "the machine is too slow; let the instant be later"
            eventually(lambda: client.llen(STARTS) == drain, timeout=300)
            seconds = time.time() - instant
            client.delete(STARTS)
            first = int((time.time() + 3) * 1000)
            for due_ms in random.sample(range(first, first + 4000), LATENESS):
                app.signature("bench.stamp", ("native", due_ms)).apply_async(
                    eta=_time(due_ms / 1000)
                )
            eventually(lambda: client.llen(STARTS) == LATENESS, timeout=30)
            late = [float(line.partition(b":")[2]) for line in client.lrange(STARTS, 0, -1)]
    return {
        **lateness("celery_eta_late", late),
        "celery_eta_schedule_rate": rate,
        "celery_eta_drain_rate": drain / seconds,
        "celery_eta_idle_per_s": commands / idle,
    }


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, timezone.utc)
