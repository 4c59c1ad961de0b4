"""Lateness of unrelated entries while 20,000 fall due at one instant, or 5,000/s are scheduled."""

import time

from tests.lab.benchmarks.apps import QUEUE
from tests.lab.benchmarks.children import Child
from tests.lab.benchmarks.filling import Template, fill
from tests.lab.benchmarks.lab import Lab
from tests.lab.benchmarks.probes import probes
from tests.lab.benchmarks.roles import stream
from tests.lab.benchmarks.stats import Figures, lateness

BURST, PER_SECOND = 20_000, 5000


def measure(lab: Lab) -> Figures:
    """200 entries bound for another queue, first in the second after a burst, then in a stream."""
    return _burst(lab) | _stream(lab)


def _burst(lab: Lab) -> Figures:
    server = lab.server
    with lab.app(server.url()) as app, lab.scanners(server.url()) as scanning:
        scanning.start()
        instant = time.time() + 4
        fill(server.socket, Template(app), [int(instant * 1000)] * BURST)
        with probes(server, app, 200, start=instant, span=1) as sent:
            figures = lateness("burst", sent.late_ms())
        assert server.client().llen(QUEUE) == BURST
        scanning.stop()
    return figures


def _stream(lab: Lab) -> Figures:
    server = lab.server
    span = lab.scaled(10, 4)
    with lab.app(server.url()) as app, lab.scanners(server.url()) as scanning:
        scanning.start()
        with Child(stream, server.socket, server.url(), PER_SECOND) as streaming:
            start = time.time() + 2
            with probes(server, app, 200, start=start, span=span) as sent:
                streaming.say("go")
                figures = lateness("stream", sent.late_ms())
            sent_in_all, seconds = streaming.ask("stop")
        scanning.stop()
    return {**figures, "stream_scheduled_per_s": sent_in_all / seconds}
