"""Proxies that end idle links: no call fails, and due tasks leave in time.

A minute is over when a test says so: it sets the package's clock forward, and the proxy ends the
links. If links have to be kept alive, a minute takes a second, and other times are scaled too.
"""

import time

import pytest

from celery_delayq.contrib import sentinel
from celery_delayq.core import clock
from celery_delayq.core.handover import relay
from celery_delayq.core.servers import pool
from celery_delayq.core.store import wakeup
from tests.lab.faults.conftest import make_delayq
from tests.lab.faults.proxy import Proxy
from tests.lab.hosted.scaled_times import MOMENT, PROXY, SCALE
from tests.support.waiting import PATIENCE, eventually

pytestmark = pytest.mark.libraries

__all__ = ["make_delayq"]

LONG_AGO = 1_000_000_000
PATIENT = {"task_publish_retry": False, "delayq_timeout": PATIENCE}

each_ending = pytest.mark.parametrize("ending", ["fin", "rst", "silence"])


def test_nothing_here_is_idle_for_as_long_as_such_a_proxy_waits():
    ours = (pool.IDLE, wakeup.PING_AFTER, sentinel.SIGN_AFTER, relay.IDLE)
    assert max(ours) <= PROXY / 2


@pytest.fixture
def scaled(monkeypatch):
    for module, name in ((pool, "IDLE"), (wakeup, "PING_AFTER"), (relay, "IDLE")):
        monkeypatch.setattr(module, name, getattr(module, name) / SCALE)


@pytest.fixture
def proxy_of(scaled):
    """A proxy before a server that ends idle links: ``proxy_of(server, "fin")``."""
    made = []

    def make(server, ending):
        made.append(Proxy(server.port).__enter__())
        made[-1].forget(PROXY / SCALE, ending)
        made[-1].url = f"redis://127.0.0.1:{made[-1].port}/0"
        return made[-1]

    yield make
    for proxy in made:
        proxy.__exit__()


@pytest.fixture
def a_minute_later(monkeypatch):
    """Let a minute pass in which a proxy ends the links: ``a_minute_later(proxy, "fin")``."""
    passed = []
    monkeypatch.setattr(clock, "monotonic", lambda: time.monotonic() + PROXY * len(passed))

    def end(proxy, ending):
        passed.append(proxy)
        proxy.end(ending)

    return end


def wait_idle(proxy):
    """Wait until another link was ended."""
    before = proxy.forgotten
    eventually(lambda: proxy.forgotten > before)


CALLS = (
    lambda delayq: delayq.note.apply_async(task_id="new", delayq_after=3600),
    lambda delayq: delayq.get("a"),
    lambda delayq: delayq.cancel("a"),
    lambda delayq: delayq.select(all=True).count(),
)


@each_ending
def test_no_call_notices_that_its_link_was_ended(make_delayq, redis_server, a_minute_later, ending):
    redis_server.empty()
    with Proxy(redis_server.port) as proxy:
        delayq = make_delayq(f"redis://127.0.0.1:{proxy.port}/0", **PATIENT)
        delayq.note.apply_async(task_id="a", delayq_after=3600)
        for call in CALLS:
            links = proxy.accepted
            a_minute_later(proxy, ending)
            assert call(delayq)
            assert proxy.accepted == links + 1  # it did not try the old one first


@pytest.fixture
def scanning():
    """Start a scanner in this process; it ends with the test."""
    started = []

    def start(delayq):
        started.append(delayq.scanner())
        started[-1].start()
        eventually(lambda: delayq.counts().scanners == 1)

    yield start
    for scanner in started:
        scanner.stop()


def test_a_scanner_still_hears_when_the_proxy_forgot_its_other_links(
    make_delayq, redis_server, proxy_of, scanning
):
    redis_server.empty()
    proxy, client = proxy_of(redis_server, "silence"), redis_server.client()
    scanning(make_delayq(proxy.url, delayq_safety_interval=300.0, **PATIENT))
    caller = make_delayq(redis_server.url())
    for number in range(1, 4):
        wait_idle(proxy)
        caller.note.apply_async(delayq_at=LONG_AGO)
        eventually(lambda: client.llen("celery") == number)  # noqa: B023


@each_ending
def test_a_relayed_task_meets_no_dead_link(
    make_delayq, redis_server, scanning, a_minute_later, ending
):
    redis_server.empty()
    with Proxy(redis_server.port) as proxy:
        broker, store = f"redis://127.0.0.1:{proxy.port}/0", redis_server.url(1)
        delayq = make_delayq(broker, delayq_url=store, delayq_safety_interval=0.5, **PATIENT)
        scanning(delayq)
        client = redis_server.client()
        for number in range(1, 4):
            delayq.note.apply_async(delayq_at=LONG_AGO)
            eventually(lambda: client.llen("celery") == number)  # noqa: B023
            eventually(lambda: delayq.counts().in_flight == 0)
            a_minute_later(proxy, ending)
    messages = client.lrange("celery", 0, -1)
    assert not any(b"delayq_redelivered" in one for one in messages)
    assert all(b'"delayq_attempt": 1' in one for one in messages)


@pytest.fixture
def new_links(scaled, monkeypatch):
    """Let this process keep no links: it may be held up until one of them is dead."""
    monkeypatch.setattr(pool, "IDLE", 0.0)


@pytest.mark.usefixtures("new_links")
@pytest.mark.parametrize("ending", ["rst", "silence"])
def test_a_worker_whose_store_is_behind_such_a_proxy(
    make_project, start_worker, server, proxy_of, ending
):
    proxy = proxy_of(server, ending)
    project = make_project(
        delayq_url=proxy.url,
        delayq_safety_interval=2.0,
        delayq_adopt_after=60,
        delayq_timeout=PATIENCE,
    )
    worker = start_worker(
        "tests.lab.hosted.scaled", "-P", "solo", env=project.env | {MOMENT: str(wakeup.PING_AFTER)}
    )
    delayq, note = project.delayq, project.tasks["note"]
    project.wait_runs(note.delay_for(0.1))

    wait_idle(proxy)
    project.wait_runs(note.delay_for(0.1))
    wait_idle(proxy)
    far = note.apply_async(countdown=3600)
    eventually(lambda: delayq.get(far.id))
    wait_idle(proxy)
    tagged = note.s().set(delayq_tags=["t"]).delay_for(3600)
    assert delayq.select(tag="t").cancel() == 1
    eventually(lambda: tagged.state == "REVOKED")
    wait_idle(proxy)
    assert project.app.control.inspect(timeout=PATIENCE, limit=1).delayq()
    eventually(lambda: delayq.health() == [])
    assert worker.stop() == 0
    assert not any("ERROR" in line for line in worker.lines), worker.tail()


@pytest.mark.parametrize("ending", ["fin", "rst"])
def test_a_proxy_that_is_quicker_and_says_so_is_noticed_before_use(
    make_delayq, redis_server, ending
):
    redis_server.empty()
    with Proxy(redis_server.port) as proxy:
        delayq = make_delayq(f"redis://127.0.0.1:{proxy.port}/0", **PATIENT)
        delayq.note.apply_async(task_id="a", delayq_after=3600)
        for call in CALLS:
            proxy.end(ending)
            assert call(delayq)
