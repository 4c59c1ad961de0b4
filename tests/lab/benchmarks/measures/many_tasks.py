"""``schedule_many``: one task, 100,000 items."""

import time
from typing import Any

from celery_delayq import DelayQ
from tests.lab.benchmarks.lab import Lab
from tests.lab.benchmarks.measures.move_profile import script_us
from tests.lab.benchmarks.stats import Figures


def measure(lab: Lab) -> Figures:
    """All at one time, and each at a time of its own; nothing before it exists."""
    if not hasattr(DelayQ, "schedule_many"):
        return {}
    due = time.time() + 86_400
    figures: Figures = {}
    for name, times in {"at": {"at": due}, "spread": {"spread": (due, due + 3600)}}.items():
        found = _bulk(lab, lab.scaled(100_000, 20_000), times)
        figures |= {f"{name}_{figure}": value for figure, value in found.items()}
    return figures


def _bulk(lab: Lab, count: int, times: dict[str, Any]) -> Figures:
    server = lab.server
    with lab.app(server.url()) as app:
        items = (((x, 2), {}) for x in range(count))
        started, cpu = time.perf_counter(), time.process_time()
        redis_us = script_us(
            server.client(), lambda: app.delayq.schedule_many(app.noop, items, **times)
        )
        seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
        assert app.delayq.counts().scheduled == count
    return {
        "rate": count / seconds,
        "redis_us": redis_us / count,
        "caller_us": cpu / count * 1e6,
    }
