"""Scheduling: the writes, and refusals without a write."""

from datetime import timedelta

import pytest

from celery_delayq.core import clock
from celery_delayq.core.clock import MAX_DUE_MS, When, after, due_in_ms
from celery_delayq.core.store import NewEntry, Outcome, State
from celery_delayq.core.store.record import header_for
from celery_delayq.core.store.schedule import Addition
from celery_delayq.errors import AlreadyScheduled, InvalidDueTime, StoreUnavailable
from tests.store.support import (
    DUE_AT_ONCE,
    FAR_MS,
    HALF_PAST_US,
    NOW_MS,
    STILL_TO_COME,
    WAITING,
    new_record,
)

pytestmark = pytest.mark.core

both_kinds = pytest.mark.parametrize("put", ["schedule", "schedule_relayed"])


@pytest.mark.parametrize("share", [False, True], ids=["whole", "template"])
@both_kinds
def test_an_entry_can_be_read_by_its_id_at_once(store, put, share):
    getattr(store, put)("a", FAR_MS, payload="x", share=share)
    entry = store.entries.find("a")
    assert (entry.task_id, entry.state) == ("a", State.SCHEDULED)
    assert (entry.due_ms, entry.created_ms) == (FAR_MS, NOW_MS)
    assert b'"body": "x"' in entry.message
    store.check()


@both_kinds
@pytest.mark.parametrize(("when", "due_ms"), DUE_AT_ONCE, ids=str)
def test_an_entry_due_at_once_leaves_in_the_millisecond_that_has_begun(store, put, when, due_ms):
    store.set_us(HALF_PAST_US)

    assert getattr(store, put)("a", when=when) == due_ms

    shard_steps = store.steps()
    assert shard_steps.hand_over().handed_over + len(shard_steps.claim(10)[0]) == 1


@pytest.mark.parametrize(("when", "due_ms"), STILL_TO_COME, ids=str)
def test_an_entry_still_to_come_is_due_in_the_millisecond_after(store, when, due_ms):
    store.set_us(HALF_PAST_US)

    assert store.schedule("a", when=when) == due_ms

    store.set_us(due_ms * 1000 - 1)
    assert store.steps().hand_over().handed_over == 0


@pytest.mark.parametrize(("when", "due_ms"), DUE_AT_ONCE + STILL_TO_COME, ids=str)
def test_a_dry_run_rounds_a_due_time_as_the_scripts_do(when, due_ms):
    us = when.us + (HALF_PAST_US if when.mode == "after" else 0)

    assert due_in_ms(us, HALF_PAST_US) == due_ms


def test_the_last_millisecond_there_is_can_be_scheduled_and_read_to_the_digit(store):
    store.schedule("a", MAX_DUE_MS)
    assert store.entries.find("a").due_ms == store.score("due", "a") == MAX_DUE_MS


def test_a_delay_that_ends_past_the_last_is_refused_and_nothing_is_written(store):
    too_long = timedelta(milliseconds=MAX_DUE_MS - NOW_MS + 1)
    before = store.snapshot()
    with pytest.raises(InvalidDueTime) as caught:
        store.schedule("a", when=after(too_long))
    assert str(caught.value) == (
        "57953 days 16 hours 40 minutes 54.741 seconds is not a due time; "
        "expected a time before 2255-06-05"
    )
    assert store.snapshot() == before
    assert store.schedule("a", when=after(too_long - timedelta(milliseconds=1))) == MAX_DUE_MS


# Superseding: a task that is running schedules itself again, under its own id.


# How far its entry came before, in one attempt or two.
MAY_HAVE_LEFT = {
    "in flight": ["leased"],
    "no answer": ["uncertain", "leased"],
    "then dead": ["uncertain", "dead"],
}


@both_kinds
@pytest.mark.parametrize("places", MAY_HAVE_LEFT.values(), ids=MAY_HAVE_LEFT)
def test_a_running_task_that_retries_replaces_an_entry_that_may_have_left(store, put, places):
    claims, shard_steps = store.at(places[0], payload="old"), store.steps()
    for place in places[1:]:
        claims = store.take(place, "a")

    getattr(store, put)("a", FAR_MS, payload="new", supersede=True, share=True)

    store.check()
    assert store.places("a") == ["due" if put == "schedule" else "relay"]
    assert b'"new"' in store.entries.find("a").message
    assert shard_steps.ack(claims) == shard_steps.nack("unknown", claims) == 0
    assert store.entries.find("a").due_ms == FAR_MS


@pytest.mark.parametrize("place", [*WAITING, "dead"])
def test_a_running_task_replaces_no_entry_that_has_not_left(store, place):
    store.at("leased", "other")  # so that another task has a claim
    store.at(place, payload="tomorrow")
    with pytest.raises(AlreadyScheduled):
        store.schedule("a", supersede=True)
    assert b'"tomorrow"' in store.entries.find("a").message
    store.check()


def test_an_entry_of_an_unknown_format_is_not_superseded(store):
    store.schedule("a", FAR_MS)
    newer = b"0" + store.record("a")[1:]
    store.raw.hset(store.keys["records"], "a", newer)
    with pytest.raises(AlreadyScheduled):
        store.schedule("a", supersede=True)
    assert store.record("a") == newer


def test_nothing_of_a_dead_ghost_clings_to_a_new_entry_of_its_id(store):
    store.schedule_relayed("a", NOW_MS)
    store.raw.hdel(store.keys["records"], "a")
    store.steps().claim(1)
    assert store.places("a") == ["dead"]
    store.schedule("a", FAR_MS)
    entry = store.entries.find("a")
    assert (entry.due_ms, entry.state, entry.facts.error) == (FAR_MS, State.SCHEDULED, "")
    assert store.reschedule("a", When("by", 1)) == (Outcome.DONE, FAR_MS + 1)


def test_a_call_whose_time_is_over_schedules_nothing(store):
    new = NewEntry("a", When("at", FAR_MS), new_record("a", header_for("L", "celery")))
    with pytest.raises(StoreUnavailable):
        store.entries.schedule([new], Addition(until=clock.monotonic()))
    assert store.entries.find("a") is None
