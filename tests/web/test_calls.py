"""No view asks more of Redis the more tasks wait, but those that say so."""

from collections import Counter

import pytest

from celery_delayq.core.hooks import Hooks
from tests.app.support import FAR
from tests.support.waiting import without_threads

VIEWS = [
    *("/tasks", "/tasks?order=latest", "/tasks?tag=rare", "/tasks?after=2100-01-01T00:30"),
    *("/tasks?state=DEAD", "/tasks?state=IN_FLIGHT", "/tasks?state=PAUSED", "/tasks?key=k"),
    *("/task?id=task-1", "/task?id=none", "/paused", "/history", "/key?key=k", "/keys"),
]


@pytest.fixture
def calls(app):
    """How often each script was called."""
    counts = Counter()
    app.delayq.services.hooks.add(Hooks(called=lambda name, _: counts.update([name])))
    return counts


def fill(app, first, count):
    items = [((one,), {}, FAR + one, f"task-{one}") for one in range(first, first + count)]
    app.delayq.schedule_many(app.tasks["shop.remind"], items)


def asked(browser, calls, path):
    calls.clear()
    assert browser.get(path).status in (200, 404)
    # A process asks now and then whether the others still agree with it.
    return {name: count for name, count in calls.items() if name != "agreed"}


def test_a_view_makes_as_many_calls_with_few_tasks_as_with_many(app, browser, calls, monkeypatch):
    without_threads(monkeypatch, "delayq-unread")  # it reads beside the page
    fill(app, 0, 300)
    app.send_task("shop.remind", (1,), task_id="x", delayq_at=FAR, delayq_tags=["rare"])
    few = {path: asked(browser, calls, path) for path in VIEWS}
    fill(app, 300, 3000)
    assert {path: asked(browser, calls, path) for path in VIEWS} == few
    assert max(sum(one.values()) for one in few.values()) < 10


def test_the_overview_reads_the_next_10_000_tasks_and_no_more(
    app, browser, calls, monkeypatch, limits
):
    limits(queues_most=1000)
    without_threads(monkeypatch, "delayq-unread")  # it reads beside the page
    fill(app, 0, 1200)
    few = asked(browser, calls, "/")
    fill(app, 1200, 1200)

    assert asked(browser, calls, "/") == few
    assert few["queues"] == 2
    page = browser.get("/").text
    assert "of the 1,000 tasks that are due next Count all" in page
    assert "Waiting 2,400" in page
