"""Hand-over to RabbitMQ with confirms, beside a plain kombu publish loop with confirms."""

import time

from kombu import Connection

from tests.lab.benchmarks.apps import QUEUE
from tests.lab.benchmarks.children import Child, cpu_seconds
from tests.lab.benchmarks.filling import Template, fill, shuffled_past
from tests.lab.benchmarks.lab import Lab
from tests.lab.benchmarks.measures.move_profile import script_us
from tests.lab.benchmarks.roles import kombu_publisher
from tests.lab.benchmarks.stats import Figures
from tests.support.waiting import eventually


def measure(lab: Lab) -> Figures:
    """10,000 due at once, one scanner; only messages that RabbitMQ has confirmed count."""
    count = lab.scaled(10_000, 3000)
    confirming = {"confirm_publish": True}
    figures = handover(lab, lab.rabbit.url, count)
    _purge(lab.rabbit.url)
    with Child(kombu_publisher, lab.rabbit.url, count, confirming) as publisher:
        plain = count / publisher.ask("go")
    _purge(lab.rabbit.url)
    return figures | {"kombu_rate": plain}


def handover(lab: Lab, broker: str, count: int) -> Figures:
    """From the run's Redis to *broker*, until the last one is acknowledged.

    Returns:
        Tasks per second; for each task the time of the store's scripts, and of the scanner's CPU.
    """
    server = lab.server
    conf = {"delayq_url": server.url()}
    with lab.app(broker, **conf) as app, lab.scanners(broker, **conf) as scanning:
        fill(server.socket, Template(app), shuffled_past(count))
        (scanner,) = scanning.pids
        started, cpu = scanning.start(), cpu_seconds(scanner)
        redis_us = script_us(
            server.client(), lambda: eventually(lambda: _nothing_left(app), timeout=300)
        )
        seconds, cpu = time.perf_counter() - started, cpu_seconds(scanner) - cpu
        scanning.stop()
    rate = count / seconds
    return {"rate": rate, "redis_us": redis_us / count, "scanner_us": cpu / count * 1e6}


def _nothing_left(app) -> bool:
    counts = app.delayq.counts()
    assert not counts.dead, "entries were set aside instead of handed over"
    return not counts.scheduled and not counts.in_flight


def _purge(broker: str) -> None:
    with Connection(broker) as connection:
        connection.default_channel.queue_delete(QUEUE)
