"""The memory that a million waiting tasks add to a worker."""

from threading import Event

from tests.lab.benchmarks.children import resident_bytes
from tests.lab.benchmarks.filling import Template, fill, shuffled_future
from tests.lab.benchmarks.lab import Lab
from tests.lab.benchmarks.stats import Figures


def measure(lab: Lab) -> Figures:
    """Megabytes of one worker, before and after the store was filled, two safety scans later."""
    server = lab.server
    count = lab.scaled(1_000_000, 100_000)
    with lab.app(server.url()) as app, lab.workers(server.url(), 1, "-P", "solo") as (worker,):
        Event().wait(6)
        before = resident_bytes(worker.pid)
        fill(server.socket, Template(app), shuffled_future(count))
        Event().wait(12)
        return {
            "worker_mb": before / 1e6,
            "added_mb": (resident_bytes(worker.pid) - before) / 1e6,
        }
