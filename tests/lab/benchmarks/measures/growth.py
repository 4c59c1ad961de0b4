"""Rates and memory against the number of waiting entries.

Each size has a server of its own, and every operation goes round them block by block. So all
sizes meet the same noise.
"""

import contextlib
import statistics
import time
from dataclasses import dataclass
from itertools import islice
from typing import Any

from celery import Celery

from tests.lab.benchmarks.apps import QUEUE
from tests.lab.benchmarks.children import resident_bytes
from tests.lab.benchmarks.filling import Template, fill, shuffled_future, shuffled_past
from tests.lab.benchmarks.lab import Lab
from tests.lab.benchmarks.measures.one_task import alternating
from tests.lab.benchmarks.stats import Figures, percentile
from tests.support.redis_server import RedisServer
from tests.support.waiting import eventually

SIZES = (10_000, 100_000, 1_000_000, 10_000_000)
PAGE = 200
TURNS = 3


@dataclass
class Store:
    """A server in which *size* entries wait."""

    size: int
    server: RedisServer
    app: Celery
    template: Template
    ids: list[str]
    bytes_per_task: float


def measure(lab: Lab) -> Figures:
    """From 10,000 waiting to ``--largest``; each rate, and its share that is left at the end."""
    sizes = [size for size in SIZES if size <= lab.scaled(lab.largest, 100_000)]
    with contextlib.ExitStack() as stack:
        stores = [_filled(lab, stack, size) for size in sizes]
        figures = _rates(stores, lab.scaled(2000, 400)) | _handovers(lab, stores)
        for store in stores:
            figures[f"page_ms_{store.size}"] = _page_ms(store.app)
            figures[f"bytes_per_task_{store.size}"] = store.bytes_per_task
    rates = sorted({name.rpartition("_")[0] for name in figures if "_rate_" in name})
    for name in rates:
        figures[f"{name}_kept"] = figures[f"{name}_{sizes[-1]}"] / figures[f"{name}_{sizes[0]}"]
    figures["least_kept"] = min(figures[f"{name}_kept"] for name in rates)
    figures["page_ms"] = max(figures[f"page_ms_{size}"] for size in sizes)
    return figures


def _filled(lab: Lab, stack: contextlib.ExitStack, size: int) -> Store:
    server = stack.enter_context(lab.another_server())
    app = stack.enter_context(lab.app(server.url()))
    template = Template(app)
    empty = server.client().info("memory")["used_memory"]
    ids = fill(server.socket, template, shuffled_future(size))
    used = server.client().info("memory")["used_memory"] - empty
    return Store(size, server, app, template, ids, used / size)


def _rates(stores: list[Store], calls: int) -> Figures:
    due = time.time() + 200_000
    figures: Figures = {}

    def compare(name: str, call_for: Any) -> None:
        calls_by_size = {str(store.size): call_for(store) for store in stores}
        for size, spent in alternating(calls_by_size, calls).items():
            figures[f"{name}_rate_{size}"] = 1e6 / spent

    def each_id(act: Any, ids: list[str]) -> Any:
        left = iter(ids[:calls])
        return lambda: act(next(left))

    compare("schedule", lambda store: lambda: store.app.noop.delay_until(due, 1, 2))
    compare("get", lambda store: each_id(store.app.delayq.get, store.ids))
    compare(
        "reschedule",
        lambda store: each_id(lambda task_id: store.app.delayq.reschedule(task_id, due), store.ids),
    )
    compare("cancel", lambda store: each_id(store.app.delayq.cancel, store.ids))
    return figures


def _page_ms(app: Celery) -> float:
    """The p90 of reading a page, by turns from the start and from the middle."""
    middle = time.time() + 86_400 + 60
    spent = []
    for turn in range(50):
        started = time.perf_counter()
        read = list(islice(app.delayq.tasks(after_due=middle if turn % 2 else None), PAGE))
        spent.append((time.perf_counter() - started) * 1000)
        assert read
    return percentile(spent, 90)


def _handovers(lab: Lab, stores: list[Store]) -> Figures:
    count = lab.scaled(50_000, 20_000)
    seen = [{store.size: _handover(lab, store, count) for store in stores} for _ in range(TURNS)]
    figures: Figures = {}
    for store in stores:
        rates, memory = zip(*(turn[store.size] for turn in seen), strict=True)
        figures[f"handover_rate_{store.size}"] = statistics.median(rates)
        figures[f"scanner_mb_{store.size}"] = statistics.median(memory)
    return figures


def _handover(lab: Lab, store: Store, count: int) -> tuple[float, float]:
    client = store.server.client()
    with lab.scanners(store.server.url()) as scanning:
        fill(store.server.socket, store.template, shuffled_past(count))
        started = scanning.start()
        eventually(lambda: client.llen(QUEUE) >= count, timeout=120)
        rate = count / (time.perf_counter() - started)
        memory = resident_bytes(scanning.pids[0]) / 1e6
        scanning.stop()
    client.delete(QUEUE)
    return rate, memory
