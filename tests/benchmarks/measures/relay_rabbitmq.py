"""Hand-over to RabbitMQ with confirms, beside a plain kombu publish loop with confirms."""

import time

from kombu import Connection

from tests.benchmarks.apps import QUEUE
from tests.benchmarks.children import Child
from tests.benchmarks.filling import Template, fill, shuffled_past
from tests.benchmarks.lab import Lab
from tests.benchmarks.roles import kombu_publisher
from tests.benchmarks.stats import Figures
from tests.support.waiting import eventually


def measure(lab: Lab) -> Figures:
    """10,000 due at once, one scanner; what is counted is what RabbitMQ has confirmed."""
    count = lab.scaled(10_000, 3000)
    confirming = {"confirm_publish": True}
    rate = handover(lab, lab.rabbit.url, count)
    _purge(lab.rabbit.url)
    with Child(kombu_publisher, lab.rabbit.url, count, confirming) as publisher:
        plain = count / publisher.ask("go")
    _purge(lab.rabbit.url)
    return {"rate": rate, "kombu_rate": plain}


def handover(lab: Lab, broker: str, count: int) -> float:
    """Tasks per second from the run's Redis to *broker*, until the last one is acknowledged."""
    server = lab.server
    conf = {"delayq_url": server.url()}
    with lab.app(broker, **conf) as app, lab.scanners(broker, **conf) as scanning:
        fill(server.socket, Template(app), shuffled_past(count))
        started = scanning.start()
        eventually(lambda: _nothing_left(app), timeout=300)
        seconds = time.perf_counter() - started
        scanning.stop()
    return count / seconds


def _nothing_left(app) -> bool:
    counts = app.delayq.counts()
    assert not counts.dead, "entries were set aside instead of handed over"
    return not counts.scheduled and not counts.in_flight


def _purge(broker: str) -> None:
    with Connection(broker) as connection:
        connection.default_channel.queue_delete(QUEUE)
