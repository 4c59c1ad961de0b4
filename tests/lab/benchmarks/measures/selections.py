"""Cancelling by tag, beside one by one; and a page by cursor, with as many waiting."""

import time

from celery import Celery

from tests.lab.benchmarks.filling import Template, fill, shuffled_future
from tests.lab.benchmarks.lab import Lab, forget_scripts, longest_script_ms, script_p99_ms
from tests.lab.benchmarks.stats import Figures, percentile

TAG = "bench"
PAGE = 50
PAGES = 50
ONE_BY_ONE = 1000


def measure(lab: Lab) -> Figures:
    """100,000 with a tag among 1,000,000 that wait; no result backend."""
    tagged = lab.scaled(100_000, 10_000)
    others = lab.scaled(900_000, 90_000)
    server = lab.server
    with lab.app(server.url()) as app:
        plain = fill(server.socket, Template(app), shuffled_future(others))
        fill(server.socket, Template(app, tags=(TAG,)), shuffled_future(tagged))
        client = server.client()
        return _pages(app) | _cancelled(app, client, tagged) | _one_by_one(app, plain)


def _pages(app: Celery) -> Figures:
    """Pages that follow one another from the middle on, each by the cursor of the one before."""
    [last] = app.delayq.tasks(after_due=time.time() + 86_400 + 60, limit=1)
    spent = []
    for _ in range(PAGES):
        started = time.perf_counter()
        page = list(app.delayq.tasks(limit=PAGE, cursor=last.cursor))
        spent.append((time.perf_counter() - started) * 1000)
        assert len(page) == PAGE
        last = page[-1]
    return {"page_ms": percentile(spent, 90)}


def _cancelled(app: Celery, client, tagged: int) -> Figures:
    forget_scripts(client)
    started = time.perf_counter()
    count = app.delayq.select(tag=TAG).cancel()
    seconds = time.perf_counter() - started
    assert count == tagged
    return {
        "cancel_rate": tagged / seconds,
        "cancel_seconds": seconds,
        "script_p99_ms": script_p99_ms(client),
        "longest_script_ms": longest_script_ms(client),
    }


def _one_by_one(app: Celery, ids: list[str]) -> Figures:
    started = time.perf_counter()
    for task_id in ids[:ONE_BY_ONE]:
        assert app.delayq.cancel(task_id)
    return {"one_by_one_rate": ONE_BY_ONE / (time.perf_counter() - started)}
