"""A Redis far away: a view waits for few answers, one after the other.

How long each takes, with a round trip of 300 ms, on three shards:
``DELAYQ_TEST_FAR=0.3 .venv/bin/python -m pytest -s tests/web/test_far.py``.
"""

import os
import sys
from contextlib import ExitStack

import pytest

from celery_delayq.contrib.web import wsgi
from celery_delayq.core import clock
from tests.app.support import FAR
from tests.support.slow_link import SlowLink
from tests.web.conftest import Browser

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
