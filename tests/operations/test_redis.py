"""Every operation does what it is there for on each Redis, and nothing beside it."""

import pytest

from celery_delayq.errors import StoreError, StoreUnavailable
from tests.operations.table import OPERATIONS, each_operation, keys_of, prepare
from tests.store.support import CLOCK, FakeStore

# What a step may touch although it fails: numbers that nobody misses.
HARMLESS = ("meta", "scanners")

each_key = pytest.mark.parametrize(
    ("operation", "key"),
    [(one, key) for one in OPERATIONS for key in keys_of(one)],
    ids=lambda value: getattr(value, "script", value),
)


def does_what_it_should(operation, store):
    ready = prepare(store)
    before = store.contents()
    assert operation.take(ready) == operation.answer
    store.check()
    store.check_types()
    assert (store.contents() != before) == operation.changes
    own = store.keys["due"].removesuffix("due").encode()
    foreign = {key for key in store.raw.scan_iter("*") if not key.startswith(own)}
    assert foreign == {CLOCK.encode(), *([b"celery"] if operation.script == "hand_over" else [])}


@each_operation
def test_it_does_what_it_should_within_its_prefix_on_every_redis(each_redis, store_on, operation):
    does_what_it_should(operation, store_on(each_redis, prefix="other.app"))


@each_operation
def test_it_does_what_it_should_on_fakeredis(operation):
    does_what_it_should(operation, FakeStore())


@each_operation
def test_it_leaves_no_token_where_nothing_became_due_earlier(ready, operation):
    operation.take(ready)
    assert ready.store.raw.llen(ready.store.keys["wake"]) == 0


def kept(store):
    harmless = {store.keys[name].encode() for name in HARMLESS}
    return {key: value for key, value in store.snapshot().items() if key not in harmless}


@each_key
def test_where_it_meets_a_foreign_key_it_does_all_of_it_or_nothing(ready, operation, key):
    store = ready.store
    name = store.keys[key]
    store.raw.delete(name)
    if key == "timer":
        store.raw.lpush(name, "somebody's")
    else:
        store.raw.set(name, "somebody's")
    before = kept(store)
    try:
        answer = operation.take(ready)
    except StoreError as error:
        assert not isinstance(error, StoreUnavailable)
    else:
        assert answer == operation.answer
        return
    if operation.script == "hand_over" and store.arrived():
        # Only what the scanner wants to know failed; what had to go, went, and is not here.
        assert store.record("list") is None
        assert (store.arrived(), store.raw.zcard(store.keys["due"])) == (["list"], 0)
    else:
        assert kept(store) == before
