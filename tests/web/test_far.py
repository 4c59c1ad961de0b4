"""How much a view asks of Redis, and how long it waits for one that is far away.

How long each takes, with a round trip of 300 ms, on three shards:
``DELAYQ_TEST_FAR=0.3 .venv/bin/python -m pytest -s tests/web/test_far.py``.
"""

import os
import sys
from collections import Counter
from contextlib import ExitStack

import pytest

from celery_delayq.contrib.web import wsgi
from celery_delayq.core import clock
from celery_delayq.core.hooks import Hooks
from tests.app.support import FAR
from tests.support.slow_link import SlowLink
from tests.support.waiting import without_threads
from tests.web.conftest import Browser

# A Redis far away: a view waits for few answers, one after the other.


LATE = float(os.environ.get("DELAYQ_TEST_FAR", "0.2"))  # seconds
MOST = 3  # answers in sequence
TRIES = 4  # a busy machine may begin a thread late; what has to wait does so each time
VIEWS = (
    *("/", "/state", "/tasks", "/tasks?order=latest", "/tasks?key=k", "/tasks?due=tomorrow"),
    *("/tasks?tag=rare", "/tasks?tag=none", "/tasks?queue=celery", "/tasks?state=DEAD"),
    *("/tasks?tag=rare&state=SCHEDULED", "/tasks?tag=rare&state=SCHEDULED&state=PAUSED"),
    *("/task?id=task-1", "/task?id=none", "/paused", "/history", "/history?by=a"),
    *("/key?key=k", "/keys", "/rules", "/load", "/tasks?id=task-1", "/tasks?q=task-1"),
    "/selected?action=cancel&" + "&".join(f"one=+task-{number}" for number in range(1, 6)),
)


@pytest.fixture
def far(redis_server, delayq_app, url):
    """An app whose Redis is far, and the answers on their way: when each began and ended."""
    with ExitStack() as stack:
        link = stack.enter_context(SlowLink(redis_server.port, seconds=LATE))
        far = url.replace(f":{redis_server.port}", f":{link.port}")
        app = delayq_app(far, delayq_history=100, delayq_shards=3)
        yield app, link.waits


def in_sequence(waits):
    """How many answers followed each other: each began when the one before had ended."""
    depths = []
    for begin, end in sorted(waits):
        before = [depth for depth, ended in depths if ended <= begin + LATE / 10]
        depths.append((1 + max(before, default=0), end))
    return max((depth for depth, _ in depths), default=0)


def test_a_view_waits_for_few_answers_in_sequence(far):
    app, waits = far

    @app.task(name="shop.remind")
    def remind():
        pass

    items = [((), {}, FAR + one, f"task-{one}") for one in range(60)]
    app.delayq.schedule_many(remind, items)
    app.send_task("shop.remind", task_id="x", delayq_at=FAR, delayq_tags=["rare"], delayq_key="k")
    app.delayq.pause(queue="other")
    browser = Browser(wsgi(app.delayq, allow=lambda _: "write"))
    browser.get("/")
    found = {view: fewest(browser, waits, view) for view in VIEWS}
    for view, (depth, seconds) in found.items():
        sys.stdout.write(f"{seconds:5.2f} s, {depth} answers in sequence: {view}\n")
    assert not {view: depth for view, (depth, _) in found.items() if depth > MOST}


def fewest(browser, waits, view):
    """How many answers this view awaits in sequence, and how long: the fewest of some tries."""
    tries = []
    while len(tries) < TRIES and min(tries, default=(MOST + 1, 0))[0] > MOST:
        waits.clear()
        began = clock.monotonic()
        assert browser.get(view).status in (200, 303, 404)
        tries.append((in_sequence(waits), clock.monotonic() - began))
    return min(tries)


# No view asks more of Redis the more tasks wait, but those that say so.


OF_FEW_CALLS = [
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
    few = {path: asked(browser, calls, path) for path in OF_FEW_CALLS}
    fill(app, 300, 3000)
    assert {path: asked(browser, calls, path) for path in OF_FEW_CALLS} == few
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
