"""Reclaim takes back leases that ran out, and no others."""

import pytest

from tests.store.support import NOW_MS, tally

pytestmark = pytest.mark.core

LEASE_MS = 30_000


@pytest.fixture
def leased(store, shard_steps):
    store.schedule_relayed("a", NOW_MS - 5)
    shard_steps.claim(1)
    return store


def test_a_lease_is_not_taken_back_one_millisecond_early(leased, shard_steps):
    leased.set_ms(NOW_MS + LEASE_MS - 1)
    assert shard_steps.reclaim() == []
    leased.set_ms(NOW_MS + LEASE_MS)
    assert shard_steps.reclaim() == ["a"]
    assert leased.score("relay", "a") == NOW_MS - 5


def test_a_reclaimed_entry_says_that_it_may_be_a_second_copy(leased, shard_steps):
    leased.lease_out()
    shard_steps.reclaim()
    assert tally(*shard_steps.claim(1).entries) == (1, 0, True)


def test_of_two_scanners_that_take_back_one_gets_the_entry(leased, shard_steps):
    leased.lease_out()
    assert (shard_steps.reclaim(), leased.steps().reclaim()) == (["a"], [])


def test_leases_are_taken_back_batch_by_batch(store):
    shard_steps = store.steps(batch_size=10)
    for step in range(25):
        store.schedule_relayed(f"a{step}")
    shard_steps.claim(100)
    store.lease_out()
    assert [len(shard_steps.reclaim()) for _ in range(4)] == [10, 10, 5, 0]
    store.check()


def test_a_lease_further_off_than_it_was_long_counts_as_ended(leased, shard_steps):
    # Redis's clock was an hour ahead, and was corrected.
    leased.set_ms(NOW_MS - 3_600_000)
    assert shard_steps.reclaim() == ["a"]


def test_a_long_lease_of_another_scanner_is_not_taken_for_a_clock_set_back(store):
    store.schedule_relayed("long")
    store.steps(lease=3600).claim(1)
    assert store.steps(lease=1).reclaim() == []


def test_a_lease_without_a_claim_is_taken_back(leased, shard_steps):
    leased.raw.delete(leased.keys["claims"])
    assert shard_steps.reclaim() == ["a"]
    assert leased.score("relay", "a") == NOW_MS - 5
    leased.check()


def test_an_id_that_is_no_text_is_taken_back_with_the_others(store, shard_steps):
    for task_id in "abc":
        store.schedule_relayed(task_id)
    shard_steps.claim(3)
    member = store.raw.zrange(store.keys["leased"], 1, 1)[0]
    store.raw.zrem(store.keys["leased"], member)
    store.raw.zadd(store.keys["leased"], {member[:6] + b"\xff\xfe": 0})
    store.lease_out()
    assert sorted(shard_steps.reclaim()) == ["a", "c", "\ufffd\ufffd"]
    assert store.raw.zcard(store.keys["leased"]) == 0
