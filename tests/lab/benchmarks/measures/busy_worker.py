"""Lateness of arrival while every core runs CPU-bound tasks in the scanner's own worker."""

import os
import time

from tests.lab.benchmarks.lab import Lab
from tests.lab.benchmarks.probes import probes
from tests.lab.benchmarks.stats import Figures, lateness

SPIN = 0.25  # seconds of one CPU-bound task


def measure(lab: Lab) -> Figures:
    """A prefork worker with as many children as cores, all of them busy; 200 entries fall due."""
    server = lab.server
    cores = len(os.sched_getaffinity(0))
    count, span = lab.scaled(200, 100), lab.scaled(20, 5)
    with lab.app(server.url()) as app, lab.workers(server.url(), 1, "-c", str(cores)):
        for _ in range(int((span + 4) / SPIN) * cores):
            app.send_task("bench.spin", (SPIN,))
        with probes(server, app, count, start=time.time() + 2, span=span) as sent:
            return lateness("arrival", sent.late_ms())
