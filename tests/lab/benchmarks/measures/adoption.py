"""One prefork worker adopts messages with an eta, beside only receiving and acknowledging them."""

import json
import tempfile
import time
import uuid
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from celery import Celery
from kombu import Connection

from tests.lab.benchmarks.apps import QUEUE
from tests.lab.benchmarks.children import cpu_seconds, resident_bytes
from tests.lab.benchmarks.lab import Lab
from tests.lab.benchmarks.stats import Figures
from tests.support.waiting import eventually
from tests.support.worker import WorkerProcess

APP = "tests.lab.benchmarks.adopting"


def measure(lab: Lab) -> Figures:
    """100,000 messages in RabbitMQ, and in the Redis that is the store as well."""
    figures: Figures = {}
    count = lab.scaled(100_000, 10_000)
    for name in ("redis", "rabbitmq"):
        for kind in ("adopted", "received"):
            store = lab.server.url()  # empties it
            broker = store if name == "redis" else lab.rabbit.url
            found = _taken_in(broker, store, kind, count)
            figures |= {f"{name}_{kind}_{what}": value for what, value in found.items()}
    return figures


def _taken_in(broker: str, store: str, kind: str, count: int) -> dict[str, float]:
    conf = {"broker": broker, "delayq_url": store, "delayq_adopt_after": 60}
    task = "bench.noop" if kind == "adopted" else "bench.received"
    with tempfile.TemporaryDirectory() as folder, Connection(broker) as connection:
        log = Path(folder, "worker.log")
        worker = WorkerProcess(
            APP, "-P", "prefork", "-c", "2", log=log, env={"BENCHMARK_CONF": json.dumps(conf)}
        )
        try:
            worker.wait_ready(120)
            channel = connection.default_channel
            _send(broker, _messages(task, 200))
            eventually(lambda: _waiting(channel) == 0, timeout=60)
            sizes = [resident_bytes(worker.pid)]
            worker.pause()
            _send(broker, _messages(task, count))
            cpu, started = cpu_seconds(worker.pid), time.perf_counter()
            worker.resume()
            eventually(lambda: _noted(sizes, worker.pid) and _waiting(channel) == 0, timeout=3600)
            seconds, cpu = time.perf_counter() - started, cpu_seconds(worker.pid) - cpu
        finally:
            worker.kill()
        channel.queue_delete(QUEUE)
    grown = max(sizes) - sizes[0]
    return {"rate": count / seconds, "cpu_us": cpu / count * 1e6, "grown_mb": grown / 1e6}


def _noted(sizes: list[int], pid: int) -> bool:
    sizes.append(resident_bytes(pid))
    return True


def _waiting(channel: Any) -> int:
    client = getattr(channel, "client", None)
    if client is not None:
        return int(client.llen(QUEUE)) + int(client.hlen("unacked"))
    return int(channel.queue_declare(QUEUE, passive=True).message_count)


def _messages(task: str, count: int) -> Iterator[tuple[dict[str, Any], Any, str]]:
    """Headers, body and id of each, as Celery makes them of calls of one task."""
    with Celery("stranger", set_as_current=False) as app:
        eta = datetime.now(timezone.utc) + timedelta(days=1)
        one = app.amqp.as_task_v2("x", task, (1, 2), {}, eta=eta)
        for _ in range(count):
            headers, task_id = dict(one.headers), str(uuid.uuid4())
            headers |= {"id": task_id, "root_id": task_id}
            yield headers, one.body, task_id


def _send(broker: str, messages: Iterator[tuple[dict[str, Any], Any, str]]) -> None:
    with Connection(broker) as connection:
        producer = connection.Producer()
        for headers, body, task_id in messages:
            producer.publish(
                body,
                routing_key=QUEUE,
                headers=headers,
                correlation_id=task_id,
                serializer="json",
                delivery_mode=2,
            )
