"""A Redis far away: a view waits for few answers, one after the other."""

from contextlib import ExitStack

import pytest

from celery_delayq.contrib.web import wsgi
from celery_delayq.core import clock
from celery_delayq.core.hooks import Hooks
from tests.app.support import FAR
from tests.support.slow_link import SlowLink
from tests.web.conftest import Browser

LATE = 0.2  # seconds
MOST = 3  # answers in sequence
TRIES = 4  # a busy machine may begin a thread late; what has to wait does so each time
VIEWS = (
    *("/", "/state", "/tasks", "/tasks?order=latest", "/tasks?key=k", "/tasks?due=tomorrow"),
    *("/tasks?tag=rare", "/tasks?queue=celery", "/tasks?state=DEAD"),
    *("/tasks?tag=rare&state=SCHEDULED", "/tasks?tag=rare&state=SCHEDULED&state=PAUSED"),
    *("/task?id=task-1", "/task?id=none", "/paused", "/history", "/history?by=a"),
    *("/key?key=k", "/keys", "/rules", "/load"),
)


@pytest.fixture
def far(redis_server, delayq_app, url):
    """An app whose Redis is far, and its calls: when each began and ended."""
    with ExitStack() as stack:
        link = stack.enter_context(SlowLink(redis_server.port, seconds=LATE))
        app = delayq_app(url.replace(f":{redis_server.port}", f":{link.port}"), delayq_history=100)
        calls = []

        def note(_, seconds):
            end = clock.monotonic()
            calls.append((end - seconds, end))

        app.delayq.services.hooks.add(Hooks(called=note))
        yield app, calls


def in_sequence(calls):
    """How many calls followed each other: each began when the one before had ended."""
    depths = []
    for begin, end in sorted(calls):
        before = [depth for depth, ended in depths if ended <= begin + LATE / 10]
        depths.append((1 + max(before, default=0), end))
    return max((depth for depth, _ in depths), default=0)


def test_a_view_waits_for_few_answers_in_sequence(far):
    app, calls = far

    @app.task(name="shop.remind")
    def remind():
        pass

    items = [((), {}, FAR + one, f"task-{one}") for one in range(60)]
    app.delayq.schedule_many(remind, items)
    app.send_task("shop.remind", task_id="x", delayq_at=FAR, delayq_tags=["rare"], delayq_key="k")
    app.delayq.pause(queue="other")
    browser = Browser(wsgi(app.delayq, allow=lambda _: "write"))
    browser.get("/")
    found = {view: fewest(browser, calls, view) for view in VIEWS}
    assert not {view: depth for view, depth in found.items() if depth > MOST}


def fewest(browser, calls, view):
    """How many answers this view awaits in sequence: the fewest of some tries."""
    depths = []
    while len(depths) < TRIES and min(depths, default=MOST + 1) > MOST:
        calls.clear()
        assert browser.get(view).status in (200, 404)
        depths.append(in_sequence(calls))
    return min(depths)
