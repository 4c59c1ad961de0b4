"""One ``delay_until`` beside ``apply_async`` of the same task to the same Redis, in one process."""

import time
from collections.abc import Callable

from celery import Celery

from tests.lab.benchmarks.lab import Lab
from tests.lab.benchmarks.stats import Figures

BLOCK = 50


def measure(lab: Lab) -> Figures:
    """Microseconds for a call, in alternating blocks; without and with a Redis result backend."""
    calls = lab.scaled(3000, 500)
    url = lab.server.url()
    figures: Figures = {}
    with lab.app(url) as app:
        figures |= _beside(app, app.noop, calls, "")
    lab.server  # noqa: B018 - asking for it empties it
    with lab.app(url, url) as app:
        figures |= _beside(app, app.noop_ignored, calls, "_ignored")
        figures |= _beside(app, app.noop, calls // 3, "_backend")
    return figures


def _beside(app: Celery, task, calls: int, name: str) -> Figures:
    due = time.time() + 86_400
    pair = {
        f"delay_until{name}_us": lambda: task.delay_until(due, 1, 2),
        f"apply_async{name}_us": lambda: task.apply_async((1, 2)),
    }
    for call in pair.values():
        call()
    return alternating(pair, calls)


def alternating(pair: dict[str, Callable[[], object]], calls: int) -> Figures:
    """Microseconds per call of each function; block by block, so that both meet the same noise."""
    spent = dict.fromkeys(pair, 0.0)
    for _ in range(calls // BLOCK):
        for name, call in pair.items():
            started = time.perf_counter()
            for _ in range(BLOCK):
                call()
            spent[name] += time.perf_counter() - started
    return {name: seconds / (calls // BLOCK * BLOCK) * 1e6 for name, seconds in spent.items()}
