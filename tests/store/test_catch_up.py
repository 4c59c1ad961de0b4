"""`delayq_catch_up`: a backlog leaves at a rate, which does not delay entries that fall due."""

import pytest

from celery_delayq.core.store.record import lane_for
from tests.store.support import CLOCK, FAR_MS, NOW_MS

pytestmark = pytest.mark.core


def overdue(store, count, *, relayed=False, start=0):
    schedule = store.schedule_relayed if relayed else store.schedule
    for step in range(start, start + count):
        schedule(f"old{step:03}", NOW_MS - 10_000 + step)


def went(shard_steps, *, relayed) -> int:
    return len(shard_steps.claim(100).entries) if relayed else shard_steps.hand_over().handed_over


each_way = pytest.mark.parametrize("relayed", [False, True], ids=["direct", "relayed"])


@each_way
def test_overdue_entries_leave_at_the_rate_in_order_of_due_times(store, relayed):
    overdue(store, 60, relayed=relayed)
    shard_steps, counted, now = store.steps(catch_up=10), [], NOW_MS
    for _ in range(31):
        counted.append(went(shard_steps, relayed=relayed))
        now += 100
        store.set_ms(now)
    # The unused rate of up to a tenth of a second may be made up for.
    assert counted == [2, *[1] * 30]
    if not relayed:
        assert store.arrived() == [f"old{step:03}" for step in range(32)]
    store.check()


@each_way
def test_the_head_is_when_the_next_one_may_leave(store, relayed):
    overdue(store, 9, relayed=relayed)
    shard_steps = store.steps(catch_up=10)
    went(shard_steps, relayed=relayed)
    seen = shard_steps.hand_over(asleep=10)
    head = seen.relay if relayed else seen.due
    assert (head, seen.has_timer) == (NOW_MS + 100, True)
    store.set_ms(head - 1)
    assert went(shard_steps, relayed=relayed) == 0
    store.set_ms(head)
    assert went(shard_steps, relayed=relayed) == 1


@each_way
def test_an_entry_that_falls_due_meanwhile_leaves_at_once_and_is_a_head(store, relayed):
    overdue(store, 9, relayed=relayed)
    shard_steps = store.steps(catch_up=0.1)
    went(shard_steps, relayed=relayed)
    schedule = store.schedule_relayed if relayed else store.schedule
    for step in range(5):
        schedule(f"new{step}", NOW_MS + 50)
    seen = shard_steps.hand_over()
    assert (seen.relay if relayed else seen.due) == NOW_MS + 50
    store.set_ms(NOW_MS + 50)
    assert went(shard_steps, relayed=relayed) == 5
    store.check()


def test_an_entry_is_overdue_from_one_millisecond_past_a_second(store):
    store.schedule("a", NOW_MS - 1000)
    store.schedule("b", NOW_MS - 1001)
    shard_steps = store.steps(catch_up=0.1)
    overdue(store, 3)
    shard_steps.hand_over()
    assert store.arrived()[0] == "a"
    assert store.entries.state("b") is not None


def test_scanners_and_both_ways_share_the_rate(store):
    overdue(store, 5)
    overdue(store, 5, relayed=True, start=5)
    steps_by_shard = store.steps(catch_up=10), store.steps(catch_up=10)
    moved = [
        went(shard_steps, relayed=relayed)
        for relayed in (False, True)
        for shard_steps in steps_by_shard
    ]
    assert moved == [2, 0, 0, 0]


def test_shards_share_the_rate(store):
    overdue(store, 9)
    store.set(shards=2)
    store.raw.hset(store.keys["meta"], "shards", 2)
    shard_steps = store.steps(catch_up=10)
    shard_steps.hand_over()
    store.set_ms(shard_steps.hand_over().due)
    shard_steps.hand_over()
    assert shard_steps.hand_over().due == int(store.raw.get(CLOCK)) // 1000 + 200


def test_without_the_setting_nothing_is_paced_or_noted(store):
    overdue(store, 20)
    assert store.steps().hand_over().handed_over == 20
    assert not store.raw.hexists(store.keys["meta"], "caught_up")


def test_parking_an_entry_uses_up_none_of_the_rate(store):
    store.entries.pause(lane_for(), "")
    overdue(store, 50)
    shard_steps = store.steps(catch_up=1)
    shard_steps.hand_over()
    assert store.entries.counts().paused == 50


def test_a_clock_that_was_set_back_holds_up_nothing_for_longer_than_a_token(store):
    overdue(store, 9)
    store.set_ms(FAR_MS)
    shard_steps = store.steps(catch_up=10)
    shard_steps.hand_over()
    store.set_ms(NOW_MS)
    assert shard_steps.hand_over().due == NOW_MS + 100


def test_a_high_rate_is_reached(store):
    ids = store.flood(3000, NOW_MS - 5000)
    shard_steps, now = store.steps(batch_size=1000, catch_up=10_000), NOW_MS
    moved = 0
    for _ in range(10):
        moved += shard_steps.hand_over().handed_over
        now += 10
        store.set_ms(now)
    assert moved == 1001 + 900
    assert store.arrived() == ids[:1901]
    store.check()
