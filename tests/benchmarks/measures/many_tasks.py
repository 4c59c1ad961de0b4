"""``schedule_many``: one task, 100,000 items."""

import time

from celery_delayq import DelayQ
from tests.benchmarks.lab import Lab
from tests.benchmarks.stats import Figures


def measure(lab: Lab) -> Figures:
    """Tasks per second, all at one time and each at a time of its own; nothing before it exists."""
    if not hasattr(DelayQ, "schedule_many"):
        return {}
    count = lab.scaled(100_000, 20_000)
    due = time.time() + 86_400
    figures: Figures = {}
    for name, times in {"at": {"at": due}, "spread": {"spread": (due, due + 3600)}}.items():
        with lab.app(lab.server.url()) as app:
            items = (((x, 2), {}) for x in range(count))
            started = time.perf_counter()
            app.delayq.schedule_many(app.noop, items, **times)
            figures[f"{name}_rate"] = count / (time.perf_counter() - started)
            assert app.delayq.counts().scheduled == count
    return figures
