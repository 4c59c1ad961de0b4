"""Another program's key has one of our names: the error names it before any write."""

import pytest

from celery_delayq.contrib.care.check import check_store
from celery_delayq.core.store.keys import KEYS
from celery_delayq.errors import StoreError

NAMES = [name for name, says in KEYS.items() if not says.startswith("CHANNEL")]


def put_foreign_key(store, name):
    key = store.keys[name]
    store.raw.delete(key)
    store.raw.set(key, "somebody's")


@pytest.mark.parametrize("name", NAMES)
def test_a_process_that_joins_is_told_which_key_is_another_program_s(store, name):
    put_foreign_key(store, name)
    before = store.snapshot()

    with pytest.raises(StoreError, match=f"schedule failed: the key {store.keys[name]}: WRONGTYPE"):
        store.schedule("a")

    assert store.snapshot() == before


def test_a_scanner_is_told_which_key_is_another_program_s(store):
    store.schedule("a")
    put_foreign_key(store, "leased")
    before = store.snapshot()

    with pytest.raises(StoreError, match=f"the key {store.keys['leased']}: WRONGTYPE"):
        store.steps().hand_over()

    assert store.snapshot() == before


@pytest.mark.parametrize("name", NAMES)
def test_a_check_tells_which_key_is_another_program_s(store, name):
    store.schedule("a")
    put_foreign_key(store, name)

    with pytest.raises(StoreError, match=f"check failed: the key {store.keys[name]}: WRONGTYPE"):
        list(check_store(store.entries))
