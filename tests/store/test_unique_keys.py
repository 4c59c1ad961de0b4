"""A key belongs to the entry that waits under it; one that comes back takes it if it is free."""

import pytest

from celery_delayq.core.clock import When
from celery_delayq.core.store import Outcome
from celery_delayq.core.store.extras import Extras
from celery_delayq.core.store.ids import target_of_key
from celery_delayq.errors import AlreadyScheduled
from tests.store.support import FAR_MS, NOW_MS, Store

pytestmark = pytest.mark.core

KEY = Extras("k")


@pytest.fixture
def shard_steps(store):
    return store.steps(lease=1)


@pytest.fixture
def claimed(store, shard_steps):
    """An entry with the key that is being published."""
    store.schedule_relayed("a", extras=KEY, share=True)
    return shard_steps.claim(1)[0]


def holder(store):
    return store.raw.hget(store.keys["holders"], "k")


def is_free(store):
    """Schedule a task under the key; returns whether that was possible."""
    try:
        store.schedule_relayed("next", FAR_MS, extras=KEY)
    except AlreadyScheduled as error:
        return error.holder != "a"
    return True


def test_it_is_taken_while_its_entry_waits(store):
    store.schedule("a", FAR_MS, extras=KEY)
    assert not is_free(store)
    store.check()


@pytest.mark.parametrize("keys", [("k", "K"), ("k", "k "), ("\u00e9", "e\u0301")])
def test_keys_are_told_apart_by_their_bytes(store, keys):
    for number, key in enumerate(keys):
        store.schedule(f"a{number}", FAR_MS, extras=Extras(key))
    store.check()


def test_it_is_free_once_its_entry_was_handed_over(store, shard_steps):
    store.schedule("a", extras=KEY)
    shard_steps.hand_over()
    assert holder(store) is None
    assert is_free(store)


def test_it_is_free_once_its_entry_was_cancelled(store):
    store.schedule("a", FAR_MS, extras=KEY)
    store.entries.cancel("a")
    assert holder(store) is None
    store.set_ms(NOW_MS + 1)
    assert is_free(store)


@pytest.mark.usefixtures("claimed")
def test_it_is_free_while_its_entry_is_published(store):
    assert is_free(store)
    store.check()


def test_it_is_free_once_its_entry_was_acknowledged(store, shard_steps, claimed):
    shard_steps.ack(claimed)
    assert holder(store) is None
    assert is_free(store)


def test_it_is_free_once_its_entry_is_dead(store, shard_steps, claimed):
    shard_steps.nack("dead", claimed, reason="NO_ROUTE")
    assert is_free(store)
    store.check()


def back_by_nack(store, shard_steps, claimed):
    shard_steps.nack("unknown", claimed)


def back_by_reclaim(store, shard_steps, claimed):
    store.set_ms(NOW_MS + 5000)
    shard_steps.reclaim()


def back_from_the_dead(store, shard_steps, claimed):
    shard_steps.nack("dead", claimed, reason="NO_ROUTE")
    store.set_ms(NOW_MS + 5000)
    assert store.reschedule("a", When("at", FAR_MS))[0] is Outcome.DONE


WAYS_BACK = [back_by_nack, back_by_reclaim, back_from_the_dead]


@pytest.mark.parametrize("come_back", WAYS_BACK)
def test_an_entry_that_comes_back_has_its_key_again(store, shard_steps, claimed, come_back):
    come_back(store, shard_steps, claimed)

    assert holder(store) == b"a"
    assert not is_free(store)
    store.check()


@pytest.mark.parametrize("come_back", WAYS_BACK)
def test_an_entry_that_comes_back_does_without_its_key_if_another_has_it(
    store, shard_steps, claimed, come_back
):
    assert is_free(store)

    come_back(store, shard_steps, claimed)

    assert holder(store) == b"next"
    assert {"a", "next"} == {entry.task_id for entry in store.entries.waiting(0, FAR_MS + 1)}
    store.check()


@pytest.mark.parametrize("come_back", WAYS_BACK)
def test_it_has_it_again_where_the_other_has_left_meanwhile(store, shard_steps, claimed, come_back):
    assert is_free(store)
    store.entries.cancel("next")

    come_back(store, shard_steps, claimed)

    assert holder(store) == b"a"
    store.check()


@pytest.mark.parametrize("end", ["ack", "cancel"])
def test_an_entry_that_leaves_takes_no_other_entry_s_key_along(store, shard_steps, claimed, end):
    assert is_free(store)

    if end == "ack":
        shard_steps.ack(claimed)
    else:
        shard_steps.nack("unknown", claimed)
        assert store.entries.cancel("a")[0] is Outcome.UNCERTAIN

    assert holder(store) == b"next"
    store.check()


@pytest.mark.parametrize("extras", [Extras(), Extras("other")])
def test_an_id_that_is_scheduled_anew_lets_go_of_its_key(store, extras):
    store.schedule("a", FAR_MS, extras=KEY)
    store.schedule("a", FAR_MS, extras=extras, conflict="replace")

    assert holder(store) is None
    store.check()
    assert is_free(store)


def test_an_id_that_is_scheduled_anew_under_its_key_keeps_it(store):
    for _ in range(2):
        store.schedule("a", FAR_MS, extras=KEY, conflict="replace")

    assert holder(store) == b"a"
    store.check()


def test_the_same_key_in_another_prefix_is_another_key(store, redis_server):
    other = Store(redis_server, "other")
    store.schedule("a", FAR_MS, extras=KEY)
    other.schedule("b", FAR_MS, extras=KEY)

    assert store.entries.cancel(target_of_key("k"))[0] is Outcome.DONE
    assert other.entries.state("b")
    other.close()
