"""The wake-up token: at most one, and only for what is due earlier than anything before it."""

import pytest

from celery_delayq.clock import When
from tests.store.support import FAR_MS, NOW_MS

both_kinds = pytest.mark.parametrize("put", ["schedule", "schedule_relayed"])


def taken(store) -> int:
    """How many tokens there are; they are gone afterwards."""
    count = store.raw.llen(store.keys["wake"])
    store.raw.delete(store.keys["wake"])
    return count


@both_kinds
def test_the_first_entry_leaves_a_token(store, put):
    getattr(store, put)("a", FAR_MS)
    assert taken(store) == 1


@both_kinds
def test_an_earlier_entry_leaves_a_token_and_a_later_or_equal_one_none(store, put):
    schedule = getattr(store, put)
    schedule("a", FAR_MS)
    taken(store)
    schedule("later", FAR_MS + 1)
    schedule("equal", FAR_MS)
    assert taken(store) == 0
    schedule("earlier", FAR_MS - 1)
    assert taken(store) == 1


def test_ten_earlier_and_earlier_entries_leave_one_token(store):
    for step in range(10):
        store.schedule(f"a{step}", FAR_MS - step)
    assert taken(store) == 1


@both_kinds
def test_a_reschedule_to_before_the_head_leaves_a_token(store, put):
    getattr(store, put)("head", FAR_MS)
    getattr(store, put)("a", FAR_MS + 10)
    taken(store)
    store.entries.reschedule("a", When("at", FAR_MS + 5))
    assert taken(store) == 0
    store.entries.reschedule("a", When("at", FAR_MS - 1))
    assert taken(store) == 1


def test_moving_the_head_to_earlier_leaves_a_token_and_to_later_none(store):
    store.schedule("head", FAR_MS)
    taken(store)
    store.entries.reschedule("head", When("by", 1000))
    assert taken(store) == 0
    store.entries.reschedule("head", When("by", -1))
    assert taken(store) == 1


def test_what_is_already_due_leaves_a_token_before_a_far_head(store):
    store.schedule("far", FAR_MS)
    taken(store)
    store.schedule("now", NOW_MS)
    assert taken(store) == 1


def test_bringing_back_what_is_dead_leaves_a_token(store):
    engine = store.engine()
    store.schedule_relayed("a")
    claimed, _ = engine.claim(1)
    engine.nack("dead", claimed, reason="NO_ROUTE")
    taken(store)
    store.entries.reschedule("a", When("after", 0))
    assert taken(store) == 1


@pytest.mark.parametrize("refusal", ["repeat", "conflict"])
def test_a_call_that_writes_nothing_leaves_no_token(store, refusal):
    store.schedule("a", NOW_MS)
    taken(store)
    if refusal == "repeat":
        store.schedule("a", NOW_MS)
    else:
        with pytest.raises(ValueError, match="already scheduled"):
            store.schedule("a", 0)
    assert taken(store) == 0
