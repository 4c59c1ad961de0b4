"""``./tests/run recurring rest``: a thousand writers of rules that have nothing to do.

Each is the writer that runs in every worker, in a thread, with an app and a connection of its own;
a few processes share them. There are ten rules of a daily schedule. First no rule is due; then all
ten are, at the same moment, and all writers see it.
"""

import argparse
import contextlib
import os
import sys
import time
from datetime import datetime, timedelta, timezone
from multiprocessing.connection import Connection
from threading import Event

from celery_delayq.contrib.rules.step import Writer
from tests.lab.benchmarks.children import Child, cpu_seconds
from tests.lab.recurring.gauge import Gauge
from tests.lab.recurring.load_app import make_app
from tests.lab.recurring.shown import heading, rows
from tests.support.redis_server import RedisServer

RULES = 10
PROCESSES = 4
ALONE = 60.0  # seconds without writers, as connections cost Redis something as well
AROUND = 30.0  # seconds from the moment at which the rules are due


def writers(pipe: Connection, url: str, count: int) -> None:
    """Run writers from one word to the next; they start within half a minute, as workers do."""
    running = []
    for _ in range(count):
        app = make_app({"broker_url": url})
        app.delayq.counts()
        running.append(Writer(app.delayq))
    pipe.send("ready")
    pipe.recv()
    for writer in running:
        writer.start()
        Event().wait(30 / count)
    pipe.send("started")
    pipe.recv()
    for writer in running:
        writer._stopping.set()
    pipe.send("stopped")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=1000, metavar="N", help="default: 1000")
    parser.add_argument("--minutes", type=int, default=3, metavar="N", help="default: 3")
    options = parser.parse_args()
    print(heading(f"{options.workers} writers in {PROCESSES} processes"), flush=True)
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(RedisServer("--maxclients", "20000"))
        app = make_app({"broker_url": server.url()})
        stack.callback(app.delayq.close)
        app.delayq.counts()
        share = options.workers // PROCESSES
        children = [
            stack.enter_context(Child(writers, server.url(), share)) for _ in range(PROCESSES)
        ]
        connections = server.client().info("clients")["connected_clients"]
        begun = time.time()
        found = {
            f"{connections} connections, and no writer": _measured(server, children, begun + ALONE)
        }
        for child in children:
            child.say("go")
        for child in children:
            child.hear()
        due = _set_rules(app, options.minutes)
        found["at rest"] = _measured(server, children, due - 5)
        Event().wait(max(0.0, due - 1 - time.time()))
        found[f"{AROUND:.0f} s from the moment at which {RULES} rules are due"] = _measured(
            server, children, due + AROUND
        )
        written = sum(1 for _ in app.delayq.tasks())
        found["runs written at that moment"] = str(written - RULES)
        found["load"] = f"{os.getloadavg()[1]:.1f}"
        print(rows(("", ""), found.items()))
    return 0


def _set_rules(app, minutes: int) -> float:
    """Set rules that are due each day, first after so many minutes; return when, Unix seconds."""
    due = datetime.now(timezone.utc).replace(second=0, microsecond=0)
    due += timedelta(minutes=minutes + 1)
    for number in range(RULES):
        app.delayq.every(f"daily-{number}", app.noop.s(number), f"{due.minute} {due.hour} * * *")
    return due.timestamp()


def _measured(server: RedisServer, children: list[Child], until: float) -> str:
    gauge, cpu = Gauge(server.client()), sum(cpu_seconds(child.pid) for child in children)
    Event().wait(max(0.0, until - time.time()))
    used = sum(cpu_seconds(child.pid) for child in children) - cpu
    return f"{gauge.load()}; the writers' processes {used:.1f} s of CPU"


if __name__ == "__main__":
    sys.exit(main())
