"""A foreign key under one of our names: a loud error, and nothing lost, doubled or half-done."""

import pytest

from celery_delayq.clock import When
from celery_delayq.errors import StoreError, StoreUnavailable
from celery_delayq.store.scripts import load
from tests.store.support import FAR_MS, NOW_MS

READING = {"counts", "find", "page"}
CASES = [
    (step, key)
    for step, script in sorted(load().items())
    for key in script.keys
    if step not in READING | {"leave"}
]
# What a step may touch although it fails: numbers that nobody misses.
HARMLESS = ("meta", "scanners")


@pytest.fixture
def take(store):
    """Take one step in a store where there is something for each of them to do."""
    store.schedule("list", NOW_MS, share=True)
    store.schedule_relayed("claimed", NOW_MS, share=True)
    store.schedule_relayed("waiting", NOW_MS + 1, share=True)
    engine = store.engine(lease=1)
    claimed, _ = engine.claim(1)
    store.set_ms(NOW_MS + 2000)
    steps = {
        "schedule": lambda: store.schedule("new", NOW_MS, share=True),
        "cancel": lambda: store.entries.cancel("list"),
        "reschedule": lambda: store.entries.reschedule("list", When("at", FAR_MS)),
        "hand_over": engine.hand_over,
        "claim": lambda: engine.claim(5),
        "ack": lambda: engine.ack(claimed),
        "nack": lambda: engine.nack("dead", claimed, reason="NO_ROUTE"),
        "reclaim": engine.reclaim,
    }
    return lambda step: steps[step]()


def held(store) -> dict:
    harmless = {store.keys[name].encode() for name in HARMLESS}
    return {key: value for key, value in store.snapshot().items() if key not in harmless}


def put_foreign_key(store, name) -> None:
    store.raw.delete(name)
    if name == store.keys["timer"]:
        store.raw.lpush(name, "somebody's")
    else:
        store.raw.set(name, "somebody's")


@pytest.mark.parametrize(("step", "key"), CASES)
def test_a_step_that_meets_a_foreign_key_does_all_of_it_or_nothing(store, take, step, key):
    put_foreign_key(store, store.keys[key])
    before = held(store)
    try:
        take(step)
    except StoreError as error:
        failed = error
    else:
        return
    assert not isinstance(failed, StoreUnavailable)
    if step == "hand_over" and store.arrived():
        # Only what the scanner wants to know failed; what had to be moved, was, and is not there.
        assert store.record("list") is None
        take_again = store.raw.zcard(store.keys["due"])
        assert (store.arrived(), take_again) == (["list"], 0)
    else:
        assert held(store) == before


@pytest.mark.parametrize("key", ["dead", "dead_reasons"])
def test_what_cannot_be_set_aside_keeps_the_others_back_too(store, key):
    store.schedule("good")
    store.schedule("bad", to="strange")
    store.raw.set("strange", "somebody's")
    put_foreign_key(store, store.keys[key])
    before = held(store)
    with pytest.raises(StoreError):
        store.engine().hand_over()
    assert held(store) == before


@pytest.mark.parametrize("step", ["cancel", "hand_over", "ack"])
def test_a_foreign_key_is_not_dropped_as_if_it_were_an_old_trace(store, take, step):
    store.raw.hset(store.keys["tombstones"], mapping={f"h{step}": "h" for step in range(10_000)})
    put_foreign_key(store, store.keys["tombstones_old"])
    before = held(store)
    with pytest.raises(StoreError):
        take(step)
    assert held(store) == before
