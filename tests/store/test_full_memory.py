"""Redis at ``maxmemory``: it schedules nothing new and pushes to no list; all else goes on."""

import pytest

from celery_delayq.core import clock
from celery_delayq.core.clock import When
from celery_delayq.core.store import Entries, NewEntry, Outcome
from celery_delayq.core.store.changes import Move, Removal, Rewrite
from celery_delayq.core.store.record import NewRecord
from celery_delayq.errors import AlreadyScheduled, StoreFull
from tests.store import requests
from tests.store.support import FAR_MS, NOW_MS, new_record

pytestmark = pytest.mark.core


@pytest.fixture
def store(start_redis, store_on):
    return store_on(start_redis("--maxmemory-policy", "noeviction"))


def fill(store):
    """From here on Redis has no memory left; so the clock, which is a key, stands still."""
    store.raw.config_set("maxmemory", 1)


def test_a_repetition_of_what_was_scheduled_before_is_answered(store):
    call = requests.schedule(store, "a")
    first = call.send()
    fill(store)
    assert call.send() == first


def test_a_message_that_came_again_is_let_through_and_marked(store):
    store.entries.join()
    fill(store)
    soon = clock.monotonic() + 60

    assert not store.copies().is_taken(("a", "one"), soon)

    assert store.raw.hlen(store.keys["arrived"]) == 3


def test_a_due_entry_for_a_list_waits_until_there_is_room(store):
    for step in range(20):
        store.schedule(f"a{step}", share=True)
    shard_steps = store.steps()
    fill(store)
    seen = shard_steps.hand_over()
    assert (seen.handed_over, store.arrived()) == (0, [])
    assert seen.due == seen.now_us // 1000 + 1000
    store.raw.config_set("maxmemory", 0)
    assert shard_steps.hand_over().handed_over == 20
    assert store.arrived() == [f"a{step}" for step in range(20)]
    store.check()


def test_a_scanner_then_wakes_no_earlier_than_something_is_due(store):
    shard_steps = store.steps()
    shard_steps.hand_over()
    store.schedule("later", NOW_MS + 60_000)
    fill(store)
    seen = shard_steps.hand_over()
    assert (seen.handed_over, seen.due) == (0, NOW_MS + 60_000)


def test_where_the_id_is_taken_that_is_what_is_said(store):
    store.schedule("a", FAR_MS)
    fill(store)
    with pytest.raises(AlreadyScheduled):
        store.schedule("a", NOW_MS)


@pytest.mark.parametrize("emptied", [False, True])
def test_a_process_that_comes_new_can_cancel_and_reschedule(store, emptied):
    for task_id in ("a", "b"):
        store.schedule(task_id, FAR_MS, share=True)
    if emptied:
        store.raw.hdel(store.keys["meta"], "timeout", "schema", "shards", "turned")
    fill(store)
    entries = Entries([store.new_scripts(timeout=39.0)], store.membership)
    assert entries.change("a", Move(When("at", NOW_MS + 1)))[0] is Outcome.DONE
    assert entries.change("b", Removal())[0] is Outcome.DONE
    assert entries.change("none", Removal())[0] is Outcome.NOT_FOUND
    assert store.raw.hget(store.keys["meta"], "timeout") == b"39000"
    with pytest.raises(StoreFull):
        entries.schedule([NewEntry("c", When("at", FAR_MS), new_record("c", b"1L6:celery"))])
    entries.shards[0].scripts.connection.close()


def test_an_edit_is_told_why_not_and_one_that_is_refused_changes_nothing(store):
    store.schedule("a", FAR_MS, payload="old")
    read = store.entries.find("a")
    store.set_ms(NOW_MS + 1)
    store.reschedule("a", When("by", 1))
    fill(store)

    with pytest.raises(StoreFull):
        store.edit("a", "new")
    assert store.edit("a", "new", entry=read) is Outcome.UNCHANGED
    assert (
        store.entries.change("none", Rewrite(None, NewRecord(b"", b"", b"")))[0]
        is Outcome.NOT_FOUND
    )
    assert b'"old"' in store.entries.find("a").message


def test_generations_are_turned_there_as_well(store):
    store.schedule("a", FAR_MS)
    store.entries.change("none", Removal())
    store.raw.hset(store.keys["meta"], "turned", 0)
    fill(store)
    assert store.entries.change("a", Removal())[0] is Outcome.DONE
    assert store.raw.exists(store.keys["calls_old"])
