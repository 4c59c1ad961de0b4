"""An expiry relative to the due time: a script writes it, and moves it with the due time."""

import json
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from celery_delayq.core.clock import MAX_DUE_MS, When
from celery_delayq.core.store.record import header_for
from tests.store.support import FAR_MS, NOW_MS, new_record

pytestmark = pytest.mark.core

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
LIST = header_for("L", "celery")


def put(store, task_id, due_ms, expires):
    store.put(task_id, new_record(task_id, LIST, share=True, expires=expires), due_ms)


def expiry_of(message) -> object:
    return json.loads(message)["headers"]["expires"]


def after_epoch(ms) -> datetime:
    return EPOCH + timedelta(milliseconds=ms)


@given(st.integers(0, MAX_DUE_MS), st.integers(0, 10**12))
@example(951_782_400_000, 0)  # 2000-02-29, the leap day of a century year
@example(4_107_542_399_999, 1)  # 2100-03-01, in a century year without a leap day
@example(1_767_225_599_999, 0)  # the last millisecond of a year
@example(0, 0)
@settings(max_examples=200)
def test_the_date_that_a_script_writes_is_the_one_that_datetime_reads(store, due_ms, expires_ms):
    store.raw.flushdb()
    store.set_ms(NOW_MS)
    put(store, "a", due_ms, f"+{expires_ms}")
    text = expiry_of(store.entries.find("a").message)
    assert text == after_epoch(due_ms + expires_ms).isoformat(timespec="microseconds")


def test_a_relative_expiry_moves_with_the_due_time(store):
    put(store, "a", FAR_MS, "+60000")
    store.reschedule("a", When("at", NOW_MS))
    store.steps().hand_over()
    expiry = datetime.fromisoformat(expiry_of(store.raw.rpop("celery")))
    assert expiry == after_epoch(NOW_MS + 60_000)


@pytest.mark.parametrize("expires", ["null", '"2027-01-01T00:00:00+00:00"'])
def test_an_absolute_expiry_or_none_is_handed_over_as_it_is(store, expires):
    put(store, "a", FAR_MS, expires)
    store.reschedule("a", When("at", NOW_MS))
    store.steps().hand_over()
    assert expiry_of(store.raw.rpop("celery")) == json.loads(expires)


def test_an_entry_that_expires_before_its_due_time_is_handed_over_as_celery_does(store):
    put(store, "a", NOW_MS, "-5000")
    store.steps().hand_over()
    expiry = datetime.fromisoformat(expiry_of(store.raw.rpop("celery")))
    assert expiry == after_epoch(NOW_MS - 5000)


@pytest.mark.parametrize("expires", ["+-5000", "+", "+x", "+nan"])
def test_an_expiry_that_is_none_stops_no_other_entry(store, expires):
    for task_id, expiry in (("before", "null"), ("bad", expires), ("behind", "null")):
        put(store, task_id, NOW_MS, expiry)
    seen = store.steps().hand_over()
    assert seen.handed_over + len(seen.dead) == 3
    assert {"before", "behind"} <= set(store.arrived())
    assert store.raw.zcard(store.keys["due"]) == 0
