"""One scanner is up for the next due time; no other relies on one that is not there any more."""

import pytest

from tests.store.support import FAR_MS, NOW_MS

HOLD = pytest.mark.parametrize("put", ["schedule", "schedule_relayed"])


@HOLD
def test_the_first_that_looks_is_up_for_the_head_and_the_others_are_not(store, put):
    getattr(store, put)("a", FAR_MS)
    first, second = store.engine(), store.engine()
    assert first.hand_over().has_timer
    assert not second.hand_over().has_timer
    assert first.hand_over().has_timer


def test_with_nothing_to_wait_for_nobody_is_up(store):
    engine = store.engine()
    assert not engine.hand_over().has_timer
    store.schedule("a")
    assert not engine.hand_over().has_timer
    assert not store.raw.exists(store.keys["timer"])


def test_whoever_learns_of_an_earlier_head_is_up_for_it(store):
    store.schedule("a", FAR_MS)
    first, second = store.engine(), store.engine()
    first.hand_over()
    store.schedule("b", FAR_MS - 1)
    assert second.hand_over().has_timer
    assert not first.hand_over().has_timer


def test_a_later_head_stays_with_the_one_that_was_up_for_the_first(store):
    store.schedule("a", NOW_MS + 1000)
    store.schedule("b", FAR_MS)
    first, second = store.engine(), store.engine()
    first.hand_over()
    store.set_ms(NOW_MS + 1000)
    assert first.hand_over().has_timer
    assert not second.hand_over().has_timer


def test_when_the_one_that_is_up_leaves_another_is_woken_and_takes_over(store):
    store.schedule("a", FAR_MS)
    first, second = store.engine(), store.engine()
    first.hand_over()
    second.hand_over()
    store.raw.delete(store.keys["wake"])
    first.leave()
    assert store.raw.llen(store.keys["wake"]) == 1
    assert second.hand_over().has_timer


def test_when_one_that_is_not_up_leaves_nobody_is_woken(store):
    store.schedule("a", FAR_MS)
    first, second = store.engine(), store.engine()
    first.hand_over()
    second.hand_over()
    store.raw.delete(store.keys["wake"])
    second.leave()
    assert store.raw.llen(store.keys["wake"]) == 0
    assert first.hand_over().has_timer


def test_one_that_is_overdue_is_taken_for_dead(store):
    store.schedule_relayed("a", FAR_MS)
    dead, living = store.engine(), store.engine()
    dead.hand_over()
    store.set_ms(FAR_MS + 100)
    assert not living.hand_over().has_timer
    store.set_ms(FAR_MS + 101)
    assert living.hand_over().has_timer


def test_after_a_clock_set_back_a_watch_for_later_binds_nobody(store):
    store.schedule("a", FAR_MS)
    first, second = store.engine(), store.engine()
    first.hand_over()
    store.schedule("b", NOW_MS - 1000)
    store.set_ms(NOW_MS - 3_600_000)
    assert second.hand_over().has_timer
