"""One scanner wakes for the next entry; no other scanner relies on one that is gone."""

import pytest

from tests.store.support import FAR_MS, NOW_MS

HOLD = pytest.mark.parametrize("put", ["schedule", "schedule_relayed"])
ASLEEP = 5.0


def looks(shard_steps, **options):
    return shard_steps.hand_over(asleep=ASLEEP, **options)


def up_at(store) -> int:
    return int(store.raw.hget(store.keys["meta"], "timer").partition(b":")[0])


@HOLD
def test_the_first_that_looks_is_up_for_the_head_and_the_others_are_not(store, put):
    getattr(store, put)("a", NOW_MS + 1000)
    first, second = store.steps(), store.steps()
    assert looks(first).has_timer
    assert not looks(second).has_timer
    assert looks(first).has_timer
    assert up_at(store) == NOW_MS + 1000


def test_with_nothing_near_it_is_up_when_it_looks_next(store):
    """It looks at the end of its safety interval, and announces only that."""
    first, second = store.steps(), store.steps()
    assert looks(first).has_timer
    assert up_at(store) == NOW_MS + 5000
    store.schedule("a", FAR_MS)
    assert not looks(second).has_timer
    assert up_at(store) == NOW_MS + 5000


def test_a_scanner_that_may_not_look_again_promises_nothing(store):
    store.schedule("a", NOW_MS + 1000)
    before = store.raw.hget(store.keys["meta"], "timer")
    assert not store.steps().hand_over().has_timer
    assert store.raw.hget(store.keys["meta"], "timer") == before


def test_a_scanner_that_learns_of_an_earlier_head_is_up_for_it(store):
    store.schedule("a", NOW_MS + 1000)
    first, second = store.steps(), store.steps()
    looks(first)
    # As after a lost notification: the first one got none.
    store.schedule("b", NOW_MS + 900)
    store.raw.hset(store.keys["meta"], "timer", f"{NOW_MS + 1000}:{first.name}")
    assert looks(second).has_timer
    assert not looks(first).has_timer


def test_a_later_head_stays_with_the_one_that_was_up_for_the_first(store):
    store.schedule("a", NOW_MS + 1000)
    store.schedule("b", NOW_MS + 2000)
    first, second = store.steps(), store.steps()
    looks(first)
    store.set_ms(NOW_MS + 1000)
    assert looks(first).has_timer
    assert not looks(second).has_timer


def test_in_the_midst_of_what_it_is_behind_with_it_is_up(store):
    """It takes the next batch at once, so no other scanner has to wake."""
    for step in range(3):
        store.schedule(f"a{step}", NOW_MS - 10_000 + step)
    first, second = store.steps(batch_size=1), store.steps(batch_size=1)
    assert looks(first).has_timer
    assert up_at(store) == NOW_MS
    assert not looks(second).has_timer


def test_when_the_one_that_is_up_leaves_another_is_told_and_takes_over(store):
    first, second = store.steps(), store.steps()
    looks(first)
    looks(second)
    with store.raw.pubsub(ignore_subscribe_messages=True) as ear:
        ear.subscribe(store.keys.channels(second.name)[1])
        ear.get_message(timeout=30)
        first.leave()
        assert ear.get_message(timeout=30)["channel"].decode().endswith(second.name)
    assert not store.raw.hexists(store.keys["meta"], "timer")
    assert looks(second).has_timer


def test_when_the_other_does_not_listen_all_are_told(store):
    first, second = store.steps(), store.steps()
    looks(first)
    looks(second)
    with store.raw.pubsub(ignore_subscribe_messages=True) as ear:
        ear.subscribe(store.keys["wake"])
        ear.get_message(timeout=30)
        first.leave()
        assert ear.get_message(timeout=30)["channel"].decode() == store.keys["wake"]


def test_when_one_that_is_not_up_leaves_nobody_is_told(store):
    first, second = store.steps(), store.steps()
    looks(first)
    looks(second)
    store.raw.config_resetstat()
    second.leave()
    assert "cmdstat_publish" not in store.raw.info("commandstats")
    assert looks(first).has_timer


@pytest.mark.parametrize("alive", [True, False])
def test_only_who_is_alive_stands_in(store, alive):
    first, second = store.steps(alive=15), store.steps(alive=15)
    looks(second)
    store.set_ms(NOW_MS + (14_000 if alive else 16_000))
    store.schedule_relayed("a", NOW_MS)
    looks(first)
    name = store.raw.hget(store.keys["meta"], "timer").decode().partition(":")[2]
    assert name == (second.name if alive else first.name)


def test_a_scanner_that_is_overdue_is_taken_for_dead(store):
    store.schedule_relayed("a", NOW_MS + 1000)
    dead, living = store.steps(), store.steps()
    looks(dead)
    store.set_ms(NOW_MS + 1100)
    assert not looks(living, relay_in=1.0).has_timer
    store.set_ms(NOW_MS + 1101)
    assert looks(living, relay_in=1.0).has_timer


def test_after_a_clock_set_back_a_promise_for_later_binds_nobody(store):
    first, second = store.steps(), store.steps()
    looks(first)
    store.set_ms(NOW_MS - 3_600_000)
    store.schedule("b", NOW_MS - 3_600_000 + 1000)
    # No scanner with that name listens, so the script notified all.
    assert looks(second).has_timer
