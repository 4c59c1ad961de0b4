"""Memory for each waiting no-op task, everything included; beside native Celery ETA.

And for each that has left, as long as the store remembers it, and each whose cancel can be undone.
"""

import time
import uuid
from datetime import datetime, timezone
from threading import Event

from tests.lab.benchmarks import raw
from tests.lab.benchmarks.apps import QUEUE
from tests.lab.benchmarks.children import resident_bytes
from tests.lab.benchmarks.filling import Template, fill, shuffled_future, shuffled_past
from tests.lab.benchmarks.lab import Lab
from tests.lab.benchmarks.stats import Figures
from tests.support.waiting import eventually

# Redis keeps the answers to recent calls for seconds; they are no part of a task.
OF_CALLS = ("calls", "calls_old")


def measure(lab: Lab) -> Figures:
    """Bytes in a Redis that held nothing before, and in a worker; 100,000 here, 20,000 as ETA."""
    held = _held(lab, lab.scaled(100_000, 50_000)) | _left(lab, lab.scaled(100_000, 50_000))
    held |= _undoable(lab, lab.scaled(50_000, 10_000))
    return held | _native(lab, lab.scaled(20_000, 5000))


def _held(lab: Lab, count: int) -> Figures:
    with (
        lab.another_server() as server,
        lab.app(server.url()) as app,
        lab.workers(server.url(), 1, "-P", "solo") as (worker,),
    ):
        template, client = Template(app), server.client()
        # Scripts, connections and a template come with the first few, not with each.
        fill(server.socket, template, shuffled_future(10))
        Event().wait(3)
        before, resident = client.info("memory")["used_memory"], resident_bytes(worker.pid)
        fill(server.socket, template, shuffled_future(count))
        Event().wait(3)
        client.delete(*(app.delayq.services.scripts[0].keys[name] for name in OF_CALLS))
        used = client.info("memory")["used_memory"] - before
        return {
            "bytes_per_task": used / count,
            "worker_bytes_per_task": max(0, resident_bytes(worker.pid) - resident) / count,
            "message_bytes": float(len(raw.message_of(app, client)[0])),
        }


def _left(lab: Lab, count: int) -> Figures:
    with lab.another_server() as server, lab.app(server.url()) as app:
        template, client = Template(app), server.client()
        keys = app.delayq.services.scripts[0].keys
        used = []
        for due in (10, count):
            fill(server.socket, template, shuffled_past(due))
            while app.delayq.hand_over():
                pass
            client.delete(QUEUE, *(keys[name] for name in OF_CALLS))
            used.append(client.info("memory")["used_memory"])
        return {"bytes_per_left": (used[1] - used[0]) / client.hlen(keys["tombstones"])}


def _undoable(lab: Lab, count: int) -> Figures:
    """Of a cancelled task, with what the store remembers of it."""
    with (
        lab.another_server() as server,
        lab.app(server.url(), delayq_undo=(86_400, 100_000)) as app,
    ):
        template, client = Template(app), server.client()
        keys = app.delayq.services.scripts[0].keys
        used = []
        for more in (10, count):
            fill(server.socket, template, shuffled_future(more))
            app.delayq.select(all=True).cancel()
            client.delete(*(keys[name] for name in OF_CALLS))
            used.append(client.info("memory")["used_memory"])
        return {"bytes_per_undo": (used[1] - used[0]) / (client.hlen(keys["undo"]) - 10)}


def _native(lab: Lab, count: int) -> Figures:
    with (
        lab.another_server() as server,
        lab.app(server.url()) as app,
        lab.workers(server.url(), 1, "-P", "solo") as (worker,),
    ):
        client = server.client()
        eta = datetime.fromtimestamp(time.time() + 3000, timezone.utc)
        result = app.noop.apply_async((1, 2), eta=eta, queue="sample")
        sample, old = client.rpop("sample"), result.id.encode()
        tag = raw.delivery_tag(sample)
        Event().wait(3)
        before, resident = client.info("memory")["used_memory"], resident_bytes(worker.pid)
        for _ in range(count // 1000):
            fresh = [(str(uuid.uuid4()).encode(), str(uuid.uuid4()).encode()) for _ in range(1000)]
            client.lpush(QUEUE, *(sample.replace(old, a).replace(tag, b) for a, b in fresh))
        # A worker takes every ETA message there is; the prefetch limit grows with each.
        eventually(lambda: client.hlen("unacked") == count, timeout=300)
        Event().wait(1)
        used = client.info("memory")["used_memory"] - before
        return {
            "eta_bytes_per_task": used / count,
            "eta_worker_bytes_per_task": (resident_bytes(worker.pid) - resident) / count,
        }
