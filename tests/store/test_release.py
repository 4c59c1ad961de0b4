"""Release: an entry goes at once with another message, if it is as its caller read it."""

import json
from dataclasses import replace

import pytest

from celery_delayq.core.clock import When
from celery_delayq.core.store import Filter, Outcome
from celery_delayq.core.store.changes import Removal, Rewrite, rewritten
from celery_delayq.core.store.keys import target_of_member
from celery_delayq.core.store.record import Extras, header_for
from tests.store.support import FAR_MS, NOW_MS, ROUTE, new_record
from tests.store.test_aborted import Case, StoppableStore, stop_at
from tests.store.test_history import with_history
from tests.store.test_scanners import listen, scanner

__all__ = ["listen", "scanner"]

LARGE = "x" * 5000
EXTRAS = Extras("key", ("one", "two"), grace_ms=5000)


@pytest.fixture
def stoppable(redis_server, redis_url):
    made = StoppableStore(redis_server)
    yield made
    made.close()


both_kinds = pytest.mark.parametrize("put", ["schedule", "schedule_relayed"])


def part_of(store, task_id, payload="new"):
    record = store.entries.find(task_id).record
    place = ("L", "celery") if record.is_for_list else ("R", ROUTE)
    new = record.released(new_record(task_id, header_for(*place), payload))
    return task_id, Rewrite(record, new, releases=True)


def release(store, *parts, **options):
    parts = [(who, replace(what, **options)) for who, what in parts]
    return [one.outcome for one in rewritten(store.shard, parts)]


@both_kinds
@pytest.mark.parametrize("payload", ["new", LARGE], ids=["small", "grows"])
def test_a_released_entry_is_due_now_with_its_new_message_and_its_key_and_tags(store, put, payload):
    getattr(store, put)("a", FAR_MS, share=True, extras=EXTRAS)
    before = store.entries.find("a")
    store.set_ms(NOW_MS + 7)

    assert release(store, part_of(store, "a", payload)) == [Outcome.DONE]

    after = store.entries.find("a")
    assert json.loads(after.message)["body"] == payload
    assert store.score("due" if put == "schedule" else "relay", "a") == NOW_MS + 7
    assert (after.due_ms, after.created_ms) == (NOW_MS + 7, before.created_ms)
    assert after.extras == replace(EXTRAS, grace_ms=None)
    store.check()


@both_kinds
def test_a_released_entry_is_neither_moved_nor_edited(store, put):
    getattr(store, put)("a", FAR_MS)
    release(store, part_of(store, "a"))

    assert store.entries.find("a").record.is_released
    assert store.reschedule("a", When("at", FAR_MS))[0] is Outcome.HANDED_OVER
    assert store.edit("a", "newer") is Outcome.HANDED_OVER


def test_an_entry_that_a_selection_no_longer_matches_stays(store):
    tagged, ids = Extras(tags=("x",)), ("a", "gone", "other", "anew")
    for task_id in ids:
        store.schedule(task_id, FAR_MS, extras=Extras() if task_id == "other" else tagged)
    parts = [
        (target_of_member(what.seen.seen[:6] + task_id.encode()), what)
        for task_id, what in (part_of(store, one) for one in ids)
    ]
    store.entries.change("gone", Removal())
    store.entries.change("anew", Removal())
    store.schedule("anew", FAR_MS, extras=tagged)

    found = release(store, *parts, chosen=Filter(tags=("x",)).text)

    assert found == [Outcome.DONE, None, None, None]
    assert store.entries.find("anew").due_ms == store.entries.find("other").due_ms == FAR_MS


def test_an_entry_that_lost_its_key_since_it_was_read_stays_without_it(store):
    claims = store.at("leased", "a", extras=Extras("key"))
    part = part_of(store, "a")
    store.schedule("other", FAR_MS, extras=Extras("key"))
    store.steps().nack("unsent", claims)
    assert release(store, part) == [Outcome.UNCHANGED]
    assert store.entries.find("a").extras.key == ""
    store.check()


def test_the_history_calls_a_release_no_edit(store):
    with_history(store)
    store.schedule("a", FAR_MS)
    release(store, part_of(store, "a"))
    assert [one.what.value for one in store.entries.history(10)] == ["scheduled"]


def test_a_call_leaves_an_entry_beyond_its_bound_of_bytes_unchanged(store, limits):
    for task_id in ("a", "b"):
        store.schedule(task_id, FAR_MS)
    limits(change_bytes=1)
    parts = [part_of(store, one) for one in ("a", "b")]
    assert release(store, *parts) == [Outcome.DONE, Outcome.UNCHANGED]
    assert release(store, parts[1]) == [Outcome.DONE]


@both_kinds
def test_the_scanner_that_is_up_next_is_told(store, listen, scanner, put):
    getattr(store, put)("a", FAR_MS)
    scanner("one")
    ears = listen("one")
    release(store, part_of(store, "a"))
    assert ears.heard() == ["one"]


@pytest.mark.parametrize("payload", ["new", LARGE])
def test_where_redis_stops_a_release_nothing_leaves_early_as_it_was(stoppable, payload):
    """Its old message does not make a worker wait."""
    store = stoppable
    case = Case(
        "rewrite",
        "far",
        lambda ready: release(ready.store, part_of(ready.store, "far", payload)),
        lambda ready: ready.store.schedule("far", FAR_MS, payload="old", share=True, extras=EXTRAS),
    )
    trace = stop_at(store, case, 0, "")[-1]
    for nth in range(1, len(trace) + 1):
        for side in ("before", "after"):
            ready, *_ = stop_at(store, case, nth, side)
            ready.steps.hand_over()
            bodies = [json.loads(one)["body"] for one in ready.store.raw.lrange("celery", 0, -1)]
            assert "old" not in bodies
            assert bool(ready.store.entries.find("far")) != (payload in bodies)
