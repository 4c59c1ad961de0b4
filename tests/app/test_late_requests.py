"""A request that reaches Redis after its call has ended has no effect.

The network delays it: a proxy keeps the request, and passes it on later.
"""

import signal
import threading
import time
from contextlib import contextmanager, suppress
from functools import partial

import pytest
from celery.exceptions import SoftTimeLimitExceeded

from celery_delayq import Outcome
from celery_delayq.errors import StoreUnavailable
from tests.app.support import FAR
from tests.lab.faults.proxy import Proxy
from tests.support.waiting import PATIENCE, eventually

TIMEOUT = 0.5
ID = "the-id"


def schedule(app, task_id=ID):
    app.signature("note", (1,), task_id=task_id).delay_until(FAR)


def schedule_many(app):
    items = [((1,), {}, None, ID), ((2,), {})]
    app.delayq.schedule_many(app.signature("note"), items, at=FAR)


def cancel(app):
    app.delayq.cancel(ID)


def reschedule(app):
    app.delayq.reschedule(ID, by=60)


def replace(app):
    assert app.delayq.cancel(ID) is Outcome.DONE
    schedule(app)


CHANGING = [cancel, reschedule]


class Held:
    """An app behind a proxy that can hold what it sends, and one that reaches Redis directly."""

    def __init__(self, make, proxy, redis, url):
        self.proxy, self.redis = proxy, redis
        self.direct, self._make = make(url), make

    def app(self, timeout=TIMEOUT):
        """Behind the proxy; it knows Redis's clock, and Redis its scripts."""
        url = f"redis://127.0.0.1:{self.proxy.port}/0"
        app = self._make(url, delayq_timeout=timeout)
        for call in (schedule, schedule_many, reschedule, cancel):
            for _ in range(2):
                eventually(lambda call=call: self._in_time(call, app))
                self.direct.delayq.cancel(ID)
        # It keeps the template that all of them share and that callers send only once.
        eventually(lambda: self._in_time(partial(schedule, task_id="other"), app))
        return app

    def _in_time(self, call, app):
        """Whether it succeeds; on a busy machine its time may be over before."""
        self.clear()
        with suppress(StoreUnavailable):
            call(app)
            return True

    def clear(self):
        for task in list(self.direct.delayq.tasks()):
            self.direct.delayq.cancel(task.id)

    def calls(self):
        return self.redis.info("commandstats")["cmdstat_evalsha"]["calls"]

    def kept(self):
        """The store's data on tasks."""
        due = self.redis.zrange("{delayq:0}:due", 0, -1, withscores=True)
        names = ("records", "templates", "template_uses", "tombstones")
        return due, [self.redis.hgetall(f"{{delayq:0}}:{name}") for name in names]

    def arrives(self):
        """Let the held requests through; return when Redis has run them."""
        before = self.calls()
        self.proxy.resume()
        eventually(lambda: self.calls() > before)


@pytest.fixture
def held(delayq_app, redis, redis_server, url):
    with Proxy(redis_server.port) as proxy:
        yield Held(delayq_app, proxy, redis, url)


@pytest.mark.parametrize("call", [schedule, schedule_many, *CHANGING])
def test_a_request_that_comes_after_the_call_ended_changes_nothing(held, call):
    app = held.app()
    if call in CHANGING:
        schedule(held.direct)
    before, began = held.kept(), time.monotonic()
    held.proxy.stall()

    with pytest.raises(StoreUnavailable) as caught:
        call(app)

    assert time.monotonic() - began >= TIMEOUT
    assert caught.value.may_have_run
    assert caught.value.task_id == (ID if call is schedule else "")
    held.arrives()
    assert held.kept() == before


@contextmanager
def interrupted(error, proxy):
    """Raise an error in this thread, as a signal handler does, once a request is under way."""

    raised = threading.Event()

    def handler(*_):
        if not raised.is_set():
            raised.set()
            raise error

    def interrupt(thread, before):
        eventually(lambda: proxy.held > before)
        # A signal that comes just before the thread waits does not wake it.
        eventually(lambda: raised.is_set() or signal.pthread_kill(thread, signal.SIGALRM))

    earlier = signal.signal(signal.SIGALRM, handler)
    doing = threading.Thread(target=interrupt, args=(threading.get_ident(), proxy.held))
    doing.start()
    try:
        yield
    finally:
        doing.join()
        signal.signal(signal.SIGALRM, earlier)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SoftTimeLimitExceeded])
@pytest.mark.parametrize(
    ("call", "newer"), [(schedule, cancel), (cancel, replace), (reschedule, reschedule)]
)
def test_a_request_of_an_interrupted_call_undoes_no_later_change(held, call, newer, error):
    app = held.app(timeout=60)
    if call in CHANGING:
        schedule(held.direct)
    held.proxy.stall()
    began = time.monotonic()

    with interrupted(error, held.proxy), pytest.raises(error):
        call(app)

    assert time.monotonic() - began < PATIENCE
    newer(held.direct)
    before = held.kept()
    held.arrives()
    assert held.kept() == before
    # Calls from here on succeed.
    call(app)
    assert held.kept() != before
