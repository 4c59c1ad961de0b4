"""The peers, each in an environment of its own, and this package beside them."""

import subprocess
import sys
import time

from tests.lab.benchmarks.filling import Template, fill, shuffled_future
from tests.lab.benchmarks.lab import Lab
from tests.lab.benchmarks.measures.direct_handover import handover
from tests.lab.benchmarks.measures.idle import commands_sent
from tests.lab.benchmarks.peers import celery_eta
from tests.lab.benchmarks.peers.start import PEERS, ask, idling
from tests.lab.benchmarks.probes import probes
from tests.lab.benchmarks.stats import Figures, lateness

IDLE_FOR = 12


def measure(lab: Lab) -> Figures:
    """Rates, lateness, idle commands and memory, as far as each has them."""
    counts = {
        "schedule": lab.scaled(2000, 500),
        "drain": lab.scaled(10_000, 2000),
        "lateness": lab.scaled(100, 50),
    }
    figures = _this(lab, **counts)
    figures |= celery_eta.figures(lab, counts["schedule"], lab.scaled(5000, 1000), IDLE_FOR)
    for peer in PEERS:
        try:
            command = peer.command(lab.cache)
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"{peer.name} is left out: {error}", file=sys.stderr)
            continue
        found = _peer(lab, command, bulk=peer.name == "bullmq", **counts)
        figures |= {f"{peer.name}_{name}": figure for name, figure in found.items()}
    return figures


def _peer(
    lab: Lab, command: list[str], *, schedule: int, drain: int, lateness: int, bulk: bool
) -> Figures:
    url, client = lab.server.url(), lab.server.client()
    span = lab.scaled(10, 4)
    before = client.info("memory")["used_memory"]
    seconds = ask(command, url, "schedule", schedule)["seconds"]
    used = client.info("memory")["used_memory"] - before
    figures: Figures = {"schedule_rate": schedule / seconds, "bytes_per_task": used / schedule}
    if bulk:
        url = lab.server.url()
        figures["bulk_rate"] = drain / ask(command, url, "bulk", drain)["seconds"]
    url = lab.server.url()
    figures["drain_rate"] = drain / ask(command, url, "drain", drain)["seconds"]
    url = lab.server.url()
    figures |= _late(ask(command, url, "lateness", lateness, span)["late_ms"])
    server = lab.server
    with idling(command, server.url(), IDLE_FOR + 5):
        figures["idle_per_s"] = commands_sent(server, IDLE_FOR) / IDLE_FOR
    return figures


def _this(lab: Lab, *, schedule: int, drain: int, lateness: int) -> Figures:
    server = lab.server
    client = server.client()
    with lab.app(server.url()) as app:
        due = time.time() + 86_400
        started = time.perf_counter()
        for _ in range(schedule):
            app.noop.delay_until(due, 1, 2)
        rate = schedule / (time.perf_counter() - started)
        started = time.perf_counter()
        app.delayq.schedule_many(app.noop, (((1, 2), {}) for _ in range(drain)), at=due)
        bulk = drain / (time.perf_counter() - started)
        template = Template(app)
        before = client.info("memory")["used_memory"]
        fill(server.socket, template, shuffled_future(drain))
        used = client.info("memory")["used_memory"] - before
    drained = handover(lab, drain, scanners=1)["rate"]
    found = {"schedule_rate": rate, "bulk_rate": bulk, "drain_rate": drained}
    found["bytes_per_task"] = used / drain
    server = lab.server
    with lab.app(server.url()) as app, lab.scanners(server.url()) as scanning:
        scanning.start()
        span = lab.scaled(10, 4)
        with probes(server, app, lateness, start=time.time() + 2, span=span) as sent:
            found |= _late(sent.late_ms())
        fill(server.socket, Template(app), shuffled_future(100))
        found["idle_per_s"] = commands_sent(server, IDLE_FOR) / IDLE_FOR
        scanning.stop()
    return {f"delayq_{name}": figure for name, figure in found.items()}


def _late(late_ms: list[float]) -> Figures:
    return lateness("late", late_ms)
