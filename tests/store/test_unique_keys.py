"""A key belongs to the entry that waits under it; one that comes back takes it if it is free."""

import pytest

from celery_delayq.core.clock import When
from celery_delayq.core.store import Listing, Outcome
from celery_delayq.core.store.changes import Removal
from celery_delayq.core.store.keys import target_of_key
from celery_delayq.core.store.record import Extras
from celery_delayq.errors import AlreadyScheduled
from tests.store.support import FAR_MS, NOW_MS, Store

pytestmark = pytest.mark.core

KEY = Extras("k")


@pytest.fixture
def shard_steps(store):
    return store.steps(lease=60)


@pytest.fixture
def claimed(store, shard_steps):
    """An entry with the key that is being published."""
    return store.at("leased", by=shard_steps, extras=KEY)


def holder(store):
    return store.raw.hget(store.keys["holders"], "k")


def schedule_next(store, due_ms=FAR_MS):
    store.schedule_relayed("next", due_ms, extras=KEY)


@pytest.mark.parametrize("keys", [("k", "K"), ("k", "k "), ("\u00e9", "e\u0301")])
def test_keys_are_told_apart_by_their_bytes(store, keys):
    for number, key in enumerate(keys):
        store.schedule(f"a{number}", FAR_MS, extras=Extras(key))
    store.check()


LEAVING = {
    "handed over": ("schedule", lambda _, shard_steps: shard_steps.hand_over()),
    "cancelled": ("schedule", lambda store, _: store.entries.change("a", Removal())),
    "acknowledged": ("schedule_relayed", lambda store, _: store.take("left", "a")),
}


@pytest.mark.parametrize(("put", "leave"), LEAVING.values(), ids=LEAVING)
def test_a_key_is_free_once_its_entry_has_left(store, shard_steps, put, leave):
    getattr(store, put)("a", extras=KEY)
    leave(store, shard_steps)
    assert holder(store) is None
    store.set_ms(NOW_MS + 1)
    schedule_next(store)


BACK = {
    "unsent": lambda _, steps, claimed: steps.nack("unsent", claimed),
    "unknown": lambda _, steps, claimed: steps.nack("unknown", claimed),
    "refused": lambda _, steps, claimed: steps.nack("refused", claimed, wait=1),
    "reclaimed": lambda _, steps, __: steps.reclaim(),
    "retried": lambda store, *_: store.reschedule("a", When("at", FAR_MS)),
}
# The fate of the next entry with its key.
NEXT = {
    "waits": lambda _: None,
    "is cancelled": lambda store: store.entries.change("next", Removal()),
    "is being published": lambda store: store.take("leased", "next"),
    "is dead": lambda store: store.take("dead", "next"),
    "is lost": lambda store: store.raw.hdel(store.keys["records"], "next"),
}


@pytest.mark.parametrize("became", [None, *NEXT])
@pytest.mark.parametrize("back", BACK)
def test_an_entry_that_comes_back_has_its_key_again_unless_another_waits_under_it(
    store, shard_steps, claimed, back, became
):
    if back == "retried":
        shard_steps.nack("dead", claimed, reason="NO_ROUTE")
    store.lease_out()
    if became:
        schedule_next(store, NOW_MS if "is" in became else FAR_MS)
        NEXT[became](store)
    store.set_ms(NOW_MS + 1)

    BACK[back](store, shard_steps, claimed)

    assert "a" in {entry.task_id for entry in store.entries.waiting(Listing(0, FAR_MS + 1))}
    assert holder(store) == (b"next" if became == "waits" else b"a")
    with pytest.raises(AlreadyScheduled):
        store.schedule("third", extras=KEY)
    if became != "is lost":
        store.check()


@pytest.mark.parametrize("end", ["ack", "cancel"])
def test_an_entry_that_leaves_takes_no_other_entry_s_key_along(store, shard_steps, claimed, end):
    schedule_next(store)

    if end == "ack":
        shard_steps.ack(claimed)
    else:
        shard_steps.nack("unknown", claimed)
        assert store.entries.change("a", Removal())[0] is Outcome.UNCERTAIN

    assert holder(store) == b"next"
    store.check()


@pytest.mark.parametrize(
    ("extras", "keeps"), [(Extras(), False), (Extras("other"), False), (KEY, True)]
)
@pytest.mark.parametrize("hold", ["", "f60000"])
def test_an_id_that_is_scheduled_anew_keeps_its_key_only_if_it_is_the_same(
    store, extras, keeps, hold
):
    store.schedule("a", FAR_MS, extras=Extras("k", hold=hold))
    store.schedule("a", FAR_MS, extras=extras, conflict="replace")
    assert holder(store) == (b"a" if keeps else None)
    store.check()


def test_the_same_key_in_another_prefix_is_another_key(store, redis_server):
    other = Store(redis_server, "other")
    store.schedule("a", FAR_MS, extras=KEY)
    other.schedule("b", FAR_MS, extras=KEY)

    assert store.entries.change(target_of_key("k"), Removal())[0] is Outcome.DONE
    assert other.entries.state("b")
    other.close()
