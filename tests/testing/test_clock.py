"""A test's clock: those of the store, the app and this package move by the same amount."""

import contextlib
import re
from datetime import datetime, timedelta, timezone

import pytest
import time_machine
from freezegun import freeze_time

from celery_delayq.contrib.testing import isolated
from celery_delayq.contrib.testing.clock import MovedScripts
from celery_delayq.core import clock
from celery_delayq.core.store.scripts import load
from celery_delayq.errors import InvalidOption

NINE = "2030-01-01T09:00:00.0004Z"  # not a whole millisecond
HALF_AN_HOUR = timedelta(minutes=30)


@pytest.fixture(params=["fakeredis", "a real server"])
def each_store(request, shop):
    """An isolated ``DelayQ`` on each kind of store."""
    url = request.getfixturevalue("redis_url") if request.param != "fakeredis" else None
    with isolated(shop.app, redis=url) as delayq:
        yield delayq


def test_the_clock_moves_for_the_store_the_app_and_this_package(shop, each_store):
    def clocks():
        return each_store.now, shop.app.now(), clock.utc_now()

    before = clocks()
    each_store.advance(HALF_AN_HOUR)
    each_store.advance(hours=1, minutes=30)

    for earlier, later in zip(before, clocks(), strict=True):
        assert timedelta(hours=2) <= later - earlier < timedelta(hours=2, minutes=1)


def test_a_relative_due_time_counts_from_the_moved_clock(shop, delayq):
    shop.app.conf.delayq_capture_eta = True
    delayq.advance(days=1)

    results = [
        shop.remind.apply_async((1,), countdown=600),
        shop.remind.delay_for(600, 2),
        delayq.schedule(shop.remind.s(3), after=600),
    ]

    for result in results:
        seconds = (delayq.get(result.id).due - delayq.now).total_seconds()
        assert 300 < seconds <= 601


def test_a_relative_expiry_counts_from_the_moved_due_time(shop, delayq):
    delayq.advance(days=1)
    shop.remind.s(1).set(expires=600).delay_for(60)
    delayq.advance(minutes=1)

    assert [result.state for result in delayq.run_due()] == ["SUCCESS"]


def test_the_clock_never_goes_back(shop, delayq):
    with pytest.raises(InvalidOption) as raised:
        delayq.advance(minutes=-1)

    assert str(raised.value) == (
        "advance is '-60 s'; expected 0 or more, as time only passes; each test starts at the "
        "present"
    )


@pytest.mark.parametrize(("given", "units"), [((60,), {}), ((HALF_AN_HOUR,), {"minutes": 1})])
def test_advance_takes_a_timedelta_or_what_makes_one(shop, delayq, given, units):
    with pytest.raises(TypeError, match="advance takes a timedelta, or keywords like minutes=30"):
        delayq.advance(*given, **units)


def test_the_next_test_begins_at_the_present(shop):
    for _ in range(2):
        with isolated(shop.app) as delayq:
            assert delayq.now - datetime.now(timezone.utc) < timedelta(minutes=1)
            delayq.advance(days=1)

    assert shop.app.now() - datetime.now(timezone.utc) < timedelta(minutes=1)
    assert clock.utc_now() - datetime.now(timezone.utc) < timedelta(minutes=1)


@contextlib.contextmanager
def frozen():
    with freeze_time(NINE) as clock:
        yield clock.tick, clock.move_to


@contextlib.contextmanager
def travelling():
    with time_machine.travel(NINE, tick=False) as clock:
        yield clock.shift, clock.move_to


@pytest.mark.parametrize("stopped", [frozen, travelling], ids=["freezegun", "time_machine"])
def test_another_package_s_clock_stops_ours_and_moves_it(shop, delayq, stopped):
    with stopped() as (go_on, move_to):
        shop.remind.delay_for(60, 1)
        shop.remind.delay_until("2030-01-01T10:00:00Z", 2)
        dues = [task.due.isoformat() for task in delayq.scheduled()]
        assert dues == ["2030-01-01T09:01:00.001000+00:00", "2030-01-01T10:00:00+00:00"]

        go_on(50)
        assert delayq.run_due() == []
        go_on(10)
        assert [result.value for result in delayq.run_due()] == ["reminded 1"]
        move_to("2030-01-01T10:00:00Z")
        assert [result.value for result in delayq.run_due()] == ["reminded 2"]

        shop.remind.delay_for(60, 3)
        delayq.advance(minutes=1)
        assert [result.value for result in delayq.run_due()] == ["reminded 3"]
        assert delayq.now.isoformat() == "2030-01-01T10:01:00+00:00"


def test_time_machine_moves_the_clock_while_it_goes_on(shop, delayq):
    with time_machine.travel("2030-01-01T09:00:00Z") as traveller:
        shop.remind.delay_for(1800, 1)
        traveller.shift(1500)
        assert delayq.run_due() == []
        traveller.shift(300)
        assert [result.value for result in delayq.run_due()] == ["reminded 1"]


def test_the_clock_shows_the_present_again_after_time_machine(shop, delayq):
    with time_machine.travel(NINE):
        shop.remind.delay_for(60, 1)
    assert delayq.now.year < 2030

    shop.remind.delay_for(0, 2)

    assert [result.value for result in delayq.run_due()] == ["reminded 2"]


def test_a_real_server_goes_by_its_own_clock_and_what_advance_adds(shop, redis_url):
    with isolated(shop.app, redis=redis_url) as delayq, freeze_time(NINE) as frozen:
        assert delayq.now.year < 2030
        shop.remind.delay_for(60, 1)
        frozen.tick(60)
        assert delayq.run_due() == []

        delayq.advance(minutes=1)

        assert [result.value for result in delayq.run_due()] == ["reminded 1"]


CLOCK = re.compile(r"^local function clock_us\(\)\n.*?^end$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("name", sorted(load()))
def test_a_script_differs_from_production_in_its_clock_alone(name):
    ours = MovedScripts(None, None, None, None, set()).script(name)
    theirs = load()[name]

    assert CLOCK.sub("", ours.text) == CLOCK.sub("", theirs.text)
    assert "redis.call('TIME')" not in CLOCK.sub("", theirs.text)
    assert (ours.text != theirs.text) == ("clock_us" in theirs.text)
    assert (ours.sha != theirs.sha) == ("clock_us" in theirs.text)
