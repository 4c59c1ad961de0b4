"""A store knows when it began, and a scanner notices that it is younger than the scanner."""

import pytest

from celery_delayq.core.store import emptied
from tests.store import requests
from tests.store.support import FAR_MS, NOW_MS

pytestmark = pytest.mark.core

DAY_MS = 86_400_000
SAID = (
    "this store began 5 min ago, its scanner 3 d ago: its Redis was emptied or lost its data, and "
    "tasks that waited before are gone; find out why, load a dump if you have one, and restart the "
    "workers to end this message"
)


def empty(store, ms):
    """Empty its Redis, whose clock says this by now."""
    store.raw.flushall()
    store.set_ms(ms)


def beat(shard_steps):
    shard_steps.go_on_as(shard_steps.name)  # its next step brings a heartbeat
    return shard_steps.hand_over()


def told(store):
    counts = store.entries.counts()
    wrong = emptied(counts.began_ms, counts.scanner_ms, counts.now_ms)
    return counts.began_ms, counts.scanner_ms, wrong and wrong.sentence


def test_a_store_began_with_the_first_process_that_joined_it(store):
    store.schedule("a", FAR_MS)
    store.set_ms(NOW_MS + DAY_MS)
    store.steps().hand_over()

    assert told(store) == (NOW_MS, NOW_MS + DAY_MS, None)
    assert [one.since_ms for one in store.entries.scanners()] == [NOW_MS + DAY_MS]


def test_a_new_store_is_as_old_as_the_scanner_that_joined_it_first(store):
    shard_steps = store.steps()
    shard_steps.hand_over()
    store.set_ms(NOW_MS + DAY_MS)
    beat(shard_steps)

    assert told(store) == (NOW_MS, NOW_MS, None)


@pytest.mark.parametrize("joins_first", ["scanner", "caller"])
def test_a_store_that_was_emptied_is_younger_than_its_scanner(store, caplog, joins_first):
    old, began_ms = store.steps(), NOW_MS + 3 * DAY_MS
    old.hand_over()
    store.schedule("a", FAR_MS)

    empty(store, began_ms)
    if joins_first == "caller":
        store.schedule("b", FAR_MS)
    beat(old)
    store.set_ms(began_ms + 300_000)
    beat(old)

    assert told(store) == (began_ms, NOW_MS, SAID)
    [line] = [one for one in caplog.records if one.levelname == "ERROR"]
    assert ": this store began 0 s ago, its scanner 3 d ago: " in line.getMessage()
    # Emptied once more: the log has it already.
    empty(store, began_ms + 300_000)
    beat(old)
    assert told(store)[:2] == (began_ms + 300_000, NOW_MS)
    assert len([one for one in caplog.records if one.levelname == "ERROR"]) == 1


def test_the_message_ends_when_the_last_older_scanner_has_restarted(store):
    first, second = store.steps(), store.steps()
    first.hand_over()
    second.hand_over()
    empty(store, NOW_MS + DAY_MS)
    beat(first)
    beat(second)

    for old in (first, second):
        assert told(store)[2]
        old.leave()
        store.steps().hand_over()
    assert told(store) == (NOW_MS + DAY_MS, NOW_MS + DAY_MS, None)


def test_the_age_of_a_store_from_before_is_unknown(store, caplog):
    shard_steps = store.steps()
    shard_steps.hand_over()
    # An earlier process wrote the rest, and no time.
    store.raw.hdel(store.keys["meta"], "began")
    store.raw.hset(store.keys["heartbeats"], "old", f"{NOW_MS}:1")
    store.raw.zadd(store.keys["scanners"], {"old": NOW_MS + 15_000})
    requests.join(store)

    assert told(store) == (None, NOW_MS, None)
    assert {one.name: one.since_ms for one in store.entries.scanners()}["old"] is None
    assert caplog.records == []
