"""Arrival in the queue on an idle system, with one scanner and with ten, beside a bare timer."""

import time

from tests.lab.benchmarks.lab import Lab
from tests.lab.benchmarks.probes import probes, punctual_probes
from tests.lab.benchmarks.stats import Figures, lateness


def measure(lab: Lab) -> Figures:
    """200 tasks due at random instants."""
    count, span = lab.scaled(200, 100), lab.scaled(20, 5)
    server = lab.server
    with punctual_probes(server, count, start=time.time() + 3, span=span) as sent:
        figures = lateness("raw", sent.late_ms())
    for scanners in (1, 10):
        server = lab.server
        with lab.app(server.url()) as app, lab.scanners(server.url(), scanners) as scanning:
            scanning.start()
            with probes(server, app, count, start=time.time() + 2, span=span) as sent:
                figures |= lateness(f"scanners_{scanners}", sent.late_ms())
            scanning.stop()
    return figures
