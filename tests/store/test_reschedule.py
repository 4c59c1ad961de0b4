"""Reschedule: a new time for an entry that has not left, and no effect on one that has."""

from datetime import timedelta

import pytest

from celery_delayq.core.clock import MAX_DUE_MS, When, after, by
from celery_delayq.core.store import Outcome
from celery_delayq.core.store.changes import Removal
from celery_delayq.errors import InvalidDueTime
from tests.store.support import DUE_AT_ONCE, FAR_MS, HALF_PAST_US, NOW_MS, STILL_TO_COME, tally

pytestmark = pytest.mark.core

both_kinds = pytest.mark.parametrize("put", ["schedule", "schedule_relayed"])


def take(store, put) -> list[str]:
    """The ids of entries that a scanner takes now."""
    shard_steps = store.steps()
    if put == "schedule":
        store.raw.delete("celery")
        shard_steps.hand_over()
        return store.arrived()
    return [entry.task_id for entry in shard_steps.claim(10).entries]


@both_kinds
@pytest.mark.parametrize(
    ("old_ms", "new_ms"), [(FAR_MS, NOW_MS + 5), (NOW_MS + 5, FAR_MS)], ids=["earlier", "later"]
)
def test_a_moved_entry_fires_at_its_new_time_alone(store, put, old_ms, new_ms):
    getattr(store, put)("a", old_ms)
    assert store.reschedule("a", When("at", new_ms)) == (Outcome.DONE, new_ms)
    store.set_ms(new_ms - 1)
    assert take(store, put) == []
    store.set_ms(new_ms)
    assert take(store, put) == ["a"]


@both_kinds
@pytest.mark.parametrize(
    ("when", "expected"),
    [
        (When("at", 7), 7),
        (When("after", 0), NOW_MS),
        (When("after", 1500), NOW_MS + 1500),
        (When("by", 0), FAR_MS),
        (When("by", 1500), FAR_MS + 1500),
        (When("by", -1500), FAR_MS - 1500),
        (When("by", -2 * FAR_MS), 0),
    ],
)
def test_a_time_is_absolute_or_from_now_or_from_the_present_due_time(store, put, when, expected):
    getattr(store, put)("a", FAR_MS)
    assert store.reschedule("a", when) == (Outcome.DONE, expected)
    assert store.entries.find("a").due_ms == expected
    store.check()


@both_kinds
@pytest.mark.parametrize(("when", "due_ms"), DUE_AT_ONCE, ids=str)
def test_an_entry_moved_to_the_present_leaves_in_the_millisecond_that_has_begun(
    store, put, when, due_ms
):
    getattr(store, put)("a", FAR_MS)
    store.set_us(HALF_PAST_US)

    assert store.reschedule("a", when) == (Outcome.DONE, due_ms)

    assert take(store, put) == ["a"]


@pytest.mark.parametrize(("when", "due_ms"), STILL_TO_COME, ids=str)
def test_an_entry_moved_to_a_time_to_come_is_due_in_the_millisecond_after(store, when, due_ms):
    store.schedule("a", FAR_MS)
    store.set_us(HALF_PAST_US)

    assert store.reschedule("a", when) == (Outcome.DONE, due_ms)

    store.set_us(due_ms * 1000 - 1)
    assert take(store, "schedule") == []


@both_kinds
@pytest.mark.parametrize("share", [False, True])
def test_id_message_and_time_of_scheduling_stay(store, put, share):
    getattr(store, put)("a", FAR_MS, payload="x", share=share)
    before = store.entries.find("a")
    store.set_ms(NOW_MS + 1000)
    store.reschedule("a", When("at", FAR_MS + 1))
    after = store.entries.find("a")
    assert after.created_ms == before.created_ms == NOW_MS
    assert after.message == before.message.replace(b"%d" % FAR_MS, b"%d" % (FAR_MS + 1))
    store.check()


@pytest.mark.parametrize("due_ms", [0, 9, 999_999_999_999, MAX_DUE_MS])
def test_a_due_time_of_any_length_fits_the_record(store, due_ms):
    store.schedule("a", FAR_MS)
    store.reschedule("a", When("at", due_ms))
    assert store.entries.find("a").due_ms == store.score("due", "a") == due_ms
    assert store.reschedule("a", When("at", FAR_MS))[1] == FAR_MS
    assert store.entries.find("a").due_ms == FAR_MS


@pytest.mark.parametrize("relative", [after, by])
def test_a_time_past_the_last_is_refused_and_nothing_is_changed(store, relative):
    too_long = timedelta(milliseconds=MAX_DUE_MS)
    store.schedule("a", FAR_MS)
    before = store.snapshot()
    with pytest.raises(InvalidDueTime) as caught:
        store.reschedule("a", relative(too_long))
    assert str(caught.value).startswith("104249 days 23 hours 47 minutes 34.74 seconds is not ")
    assert store.snapshot() == before


@pytest.mark.parametrize(
    ("places", "outcome", "next_attempt"),
    [
        (["refused"], Outcome.DONE, (0, 0, False)),
        (["uncertain"], Outcome.UNCERTAIN, (1, 0, True)),
        (["uncertain", "refused"], Outcome.UNCERTAIN, (2, 0, True)),
    ],
)
def test_a_move_forgets_refusals_though_not_uncertainty(store, places, outcome, next_attempt):
    store.at("relay", due_ms=NOW_MS - 5)
    for place in places:
        store.take(place, "a")
    for due_ms in (NOW_MS - 4, NOW_MS - 3):
        assert store.reschedule("a", When("by", 1)) == (outcome, due_ms)
    (again,) = store.take("leased", "a")
    assert tally(again) == next_attempt


def test_uncertainty_outlives_a_claim_that_was_given_back(store):
    store.at("lapsed")
    store.reschedule("a", When("at", 7))
    assert [tally(one) for one in store.take("unsent", "a")] == [(1, 0, True)]
    assert [bool(one.uncertain) for one in store.take("leased", "a")] == [True]
    store.lease_out()
    assert store.entries.change("a", Removal())[0] is Outcome.UNCERTAIN


# Fields that a change keeps, and fields that it moves on.


def parts(store, task_id):
    """Insertion number, time of scheduling and time of the last change, in us."""
    fixed = store.record(task_id)[len("1L6:celery") :]
    return fixed[:6] + fixed[19:35], int.from_bytes(fixed[35:42], "big")


def test_a_change_keeps_number_and_time_of_scheduling_and_is_remembered(store):
    store.set_us(NOW_MS * 1000 + 777)
    store.schedule("a", FAR_MS)
    kept, changed = parts(store, "a")
    assert kept[6:] == b"%d" % (NOW_MS * 1000 + 777)
    assert changed == NOW_MS * 1000 + 777
    store.set_us(NOW_MS * 1000 + 5555)
    store.reschedule("a", When("by", 1))
    assert parts(store, "a") == (kept, NOW_MS * 1000 + 5555)
    assert store.entries.find("a").created_ms == NOW_MS


@pytest.mark.parametrize("back_us", [0, 249_000, 250_001, 3_600_000_000])
def test_each_change_is_later_than_the_one_before_or_now_where_the_clock_was_set_back(
    store, back_us
):
    store.schedule("a", FAR_MS)
    now_us = NOW_MS * 1000 - back_us
    store.set_us(now_us)
    first = now_us if back_us > 250_000 else NOW_MS * 1000 + 1
    for step in range(3):
        store.reschedule("a", When("by", 1))
        assert parts(store, "a")[1] == first + step


def test_a_replacement_counts_as_changed_after_the_entry_that_it_replaces(store):
    store.at("lapsed", "b")
    store.set_ms(NOW_MS - 100)
    store.schedule("b", FAR_MS, supersede=True)
    assert parts(store, "b")[1] == NOW_MS * 1000 + 1


def test_a_scanners_step_is_no_change(store):
    store.schedule_relayed("a", NOW_MS)
    before = store.record("a")
    store.set_ms(NOW_MS + 5000)
    store.take("refused", "a", wait=1)
    assert store.record("a") == before
