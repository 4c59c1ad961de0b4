"""Somebody's key under one of our names: a loud error, and nothing lost, doubled or half-done."""

import pytest

from celery_delayq.errors import StoreError, StoreUnavailable
from celery_delayq.store.scripts import load
from tests.operations.table import OPERATIONS, keys_of

# What a step may touch although it fails: numbers that nobody misses.
HARMLESS = ("meta", "scanners", "heartbeats")
ROTATING = [one for one in OPERATIONS if "'RENAME', tombstones" in load()[one.script].text]
TURNING = [one for one in OPERATIONS if "'RENAME', known, older" in load()[one.script].text]


def kept(store):
    harmless = {store.keys[name].encode() for name in HARMLESS}
    return {key: value for key, value in store.snapshot().items() if key not in harmless}


def put_foreign_key(store, key):
    name = store.keys[key]
    store.raw.delete(name)
    if key == "timer":
        store.raw.lpush(name, "somebody's")
    else:
        store.raw.set(name, "somebody's")


@pytest.mark.parametrize(
    ("operation", "key"),
    [(one, key) for one in OPERATIONS for key in keys_of(one)],
    ids=lambda value: getattr(value, "script", value),
)
def test_where_it_meets_a_foreign_key_it_does_all_of_it_or_nothing(ready, operation, key):
    store = ready.store
    put_foreign_key(store, key)
    before = kept(store)
    try:
        answer = operation.take(ready)
    except StoreUnavailable:
        raise
    except StoreError:
        answer = StoreError
    if answer is not StoreError:
        assert answer == operation.answer
    elif operation.script == "hand_over" and store.arrived():
        # Only what the scanner wants to know failed; what had to go, went, and is not here.
        assert store.record("list") is None
        assert (store.arrived(), store.raw.zcard(store.keys["due"])) == (["list"], 0)
    else:
        assert kept(store) == before


@pytest.mark.parametrize("operation", ROTATING, ids=lambda one: one.script)
def test_it_is_not_dropped_as_if_it_were_an_old_tombstone(ready, operation):
    store = ready.store
    store.raw.hset(store.keys["tombstones"], mapping={f"h{step}": "h" for step in range(10_000)})
    put_foreign_key(store, "tombstones_old")
    before = kept(store)
    with pytest.raises(StoreError):
        operation.take(ready)
    assert kept(store) == before


@pytest.mark.parametrize("key", ["answers", "answers_old", "fences", "fences_old"])
@pytest.mark.parametrize("operation", TURNING, ids=lambda one: one.script)
def test_it_is_not_dropped_as_if_it_were_what_was_known_of_calls(ready, operation, key):
    store = ready.store
    store.entries.cancel("nobody")
    store.raw.hset(store.keys["meta"], "turned", 0)
    put_foreign_key(store, key)
    before = kept(store)
    try:
        assert operation.take(ready) == operation.answer
    except StoreError:
        assert kept(store) == before
    assert store.raw.get(store.keys[key]) == b"somebody's"


def test_there_are_operations_that_drop_what_is_old():
    assert ROTATING
    assert len(TURNING) == 8
