"""``worker``: a real worker with its scanner, in a thread of the test's process."""

import logging
import os
import sys
import warnings

import pytest
import time_machine
from celery import _state
from celery.worker import state as worker_state
from freezegun import freeze_time

from celery_delayq.errors import CannotIsolate
from tests.support.waiting import eventually

pytestmark = pytest.mark.libraries

SOON = 30  # seconds that a test waits on a busy machine


@pytest.fixture
def asleep(shop):
    """Only a notification wakes the scanner: by itself it scans every five minutes."""
    shop.app.conf.delayq_safety_interval = 300


def wait_until_it_sleeps(delayq):
    """Wait for its first scan, after which it counts as alive and which finds nothing."""
    eventually(lambda: delayq.counts().scanners == 1, timeout=SOON)


def test_advance_wakes_its_scanner(shop, asleep, delayq):
    with delayq.worker():
        wait_until_it_sleeps(delayq)
        result = shop.remind.delay_for(1800, 7)
        delayq.advance(minutes=30)
        assert result.get(timeout=SOON) == "reminded 7"


def test_a_worker_s_scanner_counts_as_alive_however_much_time_passes(asleep, delayq):
    with delayq.worker():
        wait_until_it_sleeps(delayq)
        delayq.advance(days=1)
        assert delayq.counts().scanners == 1
    assert delayq.counts().scanners == 0


def test_a_worker_runs_what_was_sent_before_and_what_a_task_sends(shop, delayq):
    plain = shop.remind.delay(1)
    last = delayq.schedule(shop.remind.si(2) | shop.remind.si(3), after=60)
    with delayq.worker():
        assert plain.get(timeout=SOON) == "reminded 1"
        delayq.advance(minutes=1)
        assert last.get(timeout=SOON) == "reminded 3"


def test_a_worker_takes_the_options_that_celery_s_own_takes(shop, delayq):
    with delayq.worker(queues=["mail"], pool="threads", concurrency=2) as worker:
        result = shop.remind.s(1).set(queue="mail").delay_for(60)
        delayq.advance(minutes=1)
        assert result.get(timeout=SOON) == "reminded 1"
        assert worker.concurrency == 2

    shop.remind.delay(2)  # to a queue that this worker did not consume
    assert [ran.value for ran in delayq.run_due()] == ["reminded 2"]


def test_a_worker_follows_another_and_run_due_goes_on_from_there(shop, delayq):
    for user in (1, 2):
        with delayq.worker():
            assert shop.remind.delay(user).get(timeout=SOON) == f"reminded {user}"
    shop.remind.delay(3)
    assert [ran.value for ran in delayq.run_due()] == ["reminded 3"]


def test_meanwhile_nothing_else_runs_tasks(delayq):
    with delayq.worker():
        with pytest.raises(CannotIsolate, match=r"inside worker\(\)"):
            delayq.run_due()
        with pytest.raises(CannotIsolate, match="one at a time"), delayq.worker():
            pass


def test_time_machine_moves_the_clock_as_soon_as_the_scanner_is_told(shop, asleep, delayq):
    with delayq.worker():
        wait_until_it_sleeps(delayq)
        result = shop.remind.delay_until("2100-01-01T09:00:00Z", 7)
        with time_machine.travel("2100-01-01T09:00:00Z"):
            delayq.advance()
            assert result.get(timeout=SOON) == "reminded 7"


def test_a_worker_starts_runs_and_ends_where_freezegun_stops_the_time(shop, asleep, delayq):
    with freeze_time("2030-01-01T09:00:00Z") as frozen, delayq.worker():
        wait_until_it_sleeps(delayq)
        result = shop.remind.delay_for(1800, 7)
        frozen.tick(1800)
        delayq.advance()
        assert result.get(timeout=SOON) == "reminded 7"


def process():
    """Changes that such a worker might leave behind in this process."""
    root = logging.getLogger()
    return {
        "current": _state._tls.current_app,
        "default": _state.default_app,
        "joins": _state.task_join_will_block(),
        "revoked": set(worker_state.revoked),
        "logging": (root.handlers[:], root.level),
        "streams": (sys.stdout, sys.stderr),
        "warnings": (warnings.showwarning, warnings.filters[:]),
        "variables": dict(os.environ),
    }


def test_a_worker_leaves_no_trace(make_app, shop, delayq, monkeypatch):
    make_app()  # which is the current one now
    logging.captureWarnings(False)
    for name in [name for name in os.environ if name.startswith(("CELERY_LOG_", "_MP_FORK_"))]:
        monkeypatch.delenv(name)
    before = process()
    with delayq.worker():
        shop.app.control.revoke("a")
        eventually(lambda: "a" in worker_state.revoked, timeout=SOON)
        assert shop.remind.delay(1).get(timeout=SOON) == "reminded 1"
    after = process()

    # Celery lets its own deprecations be shown; pytest puts the filters back after each test.
    shown, earlier = after.pop("warnings"), before.pop("warnings")
    assert shown[0] is earlier[0]
    assert after == before
