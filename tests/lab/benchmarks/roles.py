"""The work of the helper processes; ``children.py`` starts them and talks to them."""

import contextlib
import json
import logging
import os
import random
import select
import time
import uuid
from multiprocessing.connection import Connection
from typing import Any

import kombu
import redis

from tests.lab.benchmarks import raw
from tests.lab.benchmarks.apps import QUEUE, make_app
from tests.lab.benchmarks.filling import Template, Wire


def scanner(pipe: Connection, broker: str, conf: dict[str, Any], count: int = 1) -> None:
    """Run *count* scanners, each in a thread, from the first word until the next."""
    # Of a thousand scanners, each has a line about an outage that the measurement makes.
    logging.disable(logging.WARNING)
    app = make_app(broker, **conf)
    app.delayq.counts()
    scanners = [app.delayq.scanner() for _ in range(count)]
    pipe.send("ready")
    pipe.recv()
    for each in scanners:
        each.start()
    pipe.recv()
    for each in scanners:
        each.stop()
    pipe.send("stopped")


def raw_mover(pipe: Connection, url: str) -> None:
    """Move everything with the barest script, at the first word."""
    client = redis.Redis.from_url(url)
    client.ping()
    pipe.send("ready")
    pipe.recv()
    raw.move_all(client)
    pipe.send("moved")


def arrivals(pipe: Connection, path: str, queue: str, count: int) -> None:
    """Take *count* messages from a list as they come; report (due, arrived), both Unix ms."""
    client = redis.Redis(unix_socket_path=path, socket_timeout=None)
    client.ping()
    _above_others()
    pipe.send("ready")
    arrived = []
    while len(arrived) < count:
        popped = client.brpop([queue], timeout=60)
        if popped is None:
            break
        arrived.append((time.time() * 1000, popped[1]))
    pipe.send([(json.loads(message)["headers"]["delayq_due"], at) for at, message in arrived])


def _above_others() -> None:
    # The watch must not be late when every core is busy. Without the right to, it may be.
    with contextlib.suppress(PermissionError):
        os.nice(-10)


def stream(pipe: Connection, path: str, url: str, per_second: int) -> None:
    """Schedule at an even pace, far ahead, from the first word until the next."""
    app = make_app(url)
    template = Template(app)
    pipe.send("ready")
    pipe.recv()
    sent, started = 0, time.monotonic()
    with Wire(path) as wire:
        while not pipe.poll(0.01):
            owed = int((time.monotonic() - started) * per_second) - sent
            fresh = [uuid.UUID(int=random.getrandbits(128), version=4) for _ in range(owed)]
            far_ms = int((time.time() + 86_400) * 1000)
            wire.send(b"".join(template.command(each, far_ms) for each in fresh))
            sent += owed
    pipe.recv()
    pipe.send((sent, time.monotonic() - started))


def punctual(pipe: Connection, path: str, queue: str, due_ms: list[int]) -> None:
    """Push a message at each of *due_ms*: the least lateness that this machine allows."""
    client = redis.Redis(unix_socket_path=path)
    client.ping()
    pipe.send("ready")
    for due in sorted(due_ms):
        select.select([], [], [], max(0.0, due / 1000 - time.time()))
        client.lpush(queue, json.dumps({"headers": {"delayq_due": due}}))
    pipe.send("done")
    pipe.recv()


def kombu_publisher(pipe: Connection, broker: str, count: int, options: dict[str, Any]) -> None:
    """Publish one message after another, as kombu's manual shows; report the seconds."""
    body = b'[[1, 2], {}, {"callbacks": null, "errbacks": null, "chain": null, "chord": null}]'
    headers = {"lang": "py", "task": "bench.noop", "id": str(uuid.uuid4()), "argsrepr": "(1, 2)"}
    with kombu.Connection(broker, transport_options=options) as connection:
        queue = kombu.Queue(QUEUE, channel=connection.default_channel)
        queue.declare()
        producer = connection.Producer()
        pipe.send("ready")
        pipe.recv()
        started = time.monotonic()
        for _ in range(count):
            producer.publish(
                body,
                routing_key=QUEUE,
                headers=headers,
                content_type="application/json",
                content_encoding="utf-8",
                delivery_mode=2,
                correlation_id=headers["id"],
            )
        pipe.send(time.monotonic() - started)
