"""A store in a Redis Cluster of three masters, beside one plain Redis: one slot, and six shards.

The broker is another Redis for all three, so each delivers by the relay.
"""

import contextlib
import threading
import time
from typing import Any

from celery import Celery

from tests.lab.benchmarks.lab import Lab
from tests.lab.benchmarks.measures.growth import PAGE
from tests.lab.benchmarks.measures.idle import commands_sent
from tests.lab.benchmarks.measures.one_task import alternating
from tests.lab.benchmarks.stats import Figures
from tests.support.clusters import ClusterServers
from tests.support.redis_server import RedisServer
from tests.support.waiting import eventually

SHARDS = 6
PLAIN, SLOT, SPREAD = "plain", "slot", "shards"


def measure(lab: Lab) -> Figures:
    """Rates of each, in alternating blocks if possible; idle commands of each node."""
    with contextlib.ExitStack() as stack:
        plain = lab.server
        cluster = stack.enter_context(ClusterServers())
        broker = stack.enter_context(lab.another_server()).url()
        confs: dict[str, dict[str, Any]] = {
            PLAIN: {"delayq_url": plain.url()},
            SLOT: {"delayq_url": cluster.url(), "delayq_prefix": "one"},
            SPREAD: {"delayq_url": cluster.url(), "delayq_shards": SHARDS},
        }
        apps = {name: stack.enter_context(lab.app(broker, **one)) for name, one in confs.items()}
        figures = _calls(apps, lab.scaled(2000, 500))
        count = lab.scaled(50_000, 5000)
        for name, app in apps.items():
            bulk, moved = _bulk(lab, app, count, broker, confs[name])
            figures |= {f"bulk_{name}": bulk, f"handover_{name}": moved}
        nodes = {PLAIN: [plain], SLOT: cluster.masters, SPREAD: cluster.masters}
        for name, conf in confs.items():
            figures[f"idle_{name}"] = _idle(lab, nodes[name], broker, conf)
        return figures


def _calls(apps: dict[str, Celery], calls: int) -> Figures:
    """Schedule and cancel one by one, and read a page; calls per second, and ms a page."""
    due = time.time() + 86_400
    ids: dict[str, list[str]] = {name: [] for name in apps}
    rates: Figures = {}

    def schedule(name: str) -> None:
        ids[name].append(apps[name].noop.delay_until(due, 1, 2).id)

    def page(name: str) -> None:
        assert len([*zip(apps[name].delayq.tasks(limit=PAGE), range(PAGE), strict=False)]) == PAGE

    def cancel(name: str) -> None:
        assert apps[name].delayq.cancel(ids[name].pop())

    for what, step, times in (
        ("schedule", schedule, calls),
        ("page", page, 100),
        ("cancel", cancel, calls),
    ):
        spent = alternating({name: lambda name=name, step=step: step(name) for name in apps}, times)
        unit = (lambda us: us / 1000) if what == "page" else (lambda us: 1e6 / us)
        rates |= {f"{what}_{name}": unit(us) for name, us in spent.items()}
    return rates


def _bulk(
    lab: Lab, app: Celery, count: int, broker: str, conf: dict[str, Any]
) -> tuple[float, float]:
    """Schedule many that are due, and deliver them by one scanner; tasks per second of each."""
    items = (((x, 2), {}) for x in range(count))
    with lab.scanners(broker, **conf) as scanning:
        started = time.perf_counter()
        assert app.delayq.schedule_many(app.noop, items, at=time.time() - 60)
        bulk = count / (time.perf_counter() - started)
        started = scanning.start()
        eventually(lambda: _is_empty(app), timeout=300)
        moved = count / (time.perf_counter() - started)
        scanning.stop()
    return bulk, moved


def _is_empty(app: Celery) -> bool:
    counts = app.delayq.counts()
    return not counts.overdue and not counts.in_flight


def _idle(lab: Lab, nodes: list[RedisServer], broker: str, conf: dict[str, Any]) -> float:
    """Commands a second that one idle scanner sends to the node that gets most."""
    seconds, found = lab.scaled(60, 15), []
    with lab.scanners(broker, **conf) as scanning:
        scanning.start()
        threading.Event().wait(2)
        threads = [
            threading.Thread(target=lambda one=one: found.append(commands_sent(one, seconds)))
            for one in nodes
        ]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        scanning.stop()
    return max(found) / seconds
