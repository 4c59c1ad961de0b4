"""Late policies: an entry that is later than its grace period does not leave."""

import pytest

from celery_delayq.core.clock import When
from celery_delayq.core.store import Outcome
from celery_delayq.core.store.changes import Removal
from celery_delayq.core.store.record import Extras, lane_for
from tests.store.support import FAR_MS, NOW_MS

pytestmark = pytest.mark.core

GRACE = Extras(grace_ms=5000)
ALL = lane_for()


def schedule(store, task_id, due_ms=NOW_MS, *, relayed=False, extras=GRACE, **options):
    put = store.schedule_relayed if relayed else store.schedule
    put(task_id, due_ms, extras=extras, **options)


def step(store, shard_steps, *, relayed):
    """Make one delivery, direct or relayed; returns the entries that went, and those skipped."""
    if relayed:
        claimed = shard_steps.claim(100)
        return [one.task_id for one in claimed.entries], claimed.skipped
    seen = shard_steps.hand_over()
    return store.arrived(), seen.skipped


each_way = pytest.mark.parametrize("relayed", [False, True], ids=["direct", "relayed"])


@each_way
def test_at_the_end_of_its_grace_an_entry_leaves_and_a_millisecond_later_it_is_skipped(
    store, relayed
):
    shard_steps = store.steps()
    schedule(store, "a", relayed=relayed)
    store.set_ms(NOW_MS + 5000)
    assert step(store, shard_steps, relayed=relayed) == (["a"], [])
    schedule(store, "b", relayed=relayed)
    store.set_ms(NOW_MS + 5001)
    went, skipped = step(store, shard_steps, relayed=relayed)
    assert "b" not in went
    assert skipped == [("b", "skipped: 5 s late")]
    assert store.entries.state("b") is None
    store.check()


@each_way
def test_beside_a_skipped_entry_those_in_time_and_without_a_policy_go(store, relayed):
    for number in range(6):
        extras = (GRACE, Extras(tags=("x",)), Extras())[number % 3]
        schedule(store, f"a{number}", NOW_MS + number, relayed=relayed, extras=extras, share=True)
    store.set_ms(NOW_MS + 5002)
    went, skipped = step(store, store.steps(), relayed=relayed)
    assert went == ["a1", "a2", "a3", "a4", "a5"]
    assert [task_id for task_id, _ in skipped] == ["a0"]
    store.check()


@each_way
def test_nothing_is_left_of_a_skipped_entry_but_its_tombstone(store, relayed):
    extras = Extras(key="k", tags=("x", "y"), grace_ms=0)
    schedule(store, "a", relayed=relayed, extras=extras, share=True)
    store.set_ms(NOW_MS + 1)
    step(store, store.steps(), relayed=relayed)
    assert store.entries.change("a", Removal())[0] is Outcome.NOT_FOUND
    assert store.reschedule("a", When("at", FAR_MS))[0] is Outcome.NOT_FOUND
    assert store.entries.handed_over_ms("a") is None
    assert store.raw.hget(store.keys["tombstones"], "a") == b"s%d" % (NOW_MS + 1)
    left = ("due", "relay", "records", "holders", "tags", "templates", "claims", "errors")
    assert [name for name in left if store.raw.exists(store.keys[name])] == []
    schedule(store, "b", FAR_MS, extras=extras)
    store.check()


@each_way
def test_revoked_is_owed_at_once_for_a_skipped_entry_where_there_is_a_backend(store, relayed):
    for owes in (False, True):
        schedule(store, "a", relayed=relayed, share=True)
        store.set_ms(NOW_MS + 5001)
        shard_steps = store.steps(owes=owes)
        step(store, shard_steps, relayed=relayed)
        owed = shard_steps.owed()
        assert [one.task_id for one in owed] == ["a"] * owes
    assert (owed[0].outcome, owed[0].reason) == (Outcome.DONE, "skipped: 5 s late")
    assert b'"id": "a"' in owed[0].message


def test_an_entry_that_may_have_been_delivered_is_owed_as_uncertain(store):
    store.at("uncertain", extras=GRACE)
    shard_steps = store.steps(owes=True)
    store.set_ms(NOW_MS + 5001)
    assert shard_steps.claim(1).skipped
    assert shard_steps.owed()[0].outcome is Outcome.UNCERTAIN


@pytest.mark.parametrize("place", ["uncertain", "refused"])
def test_nothing_is_left_of_the_attempts_of_one_that_is_skipped(store, place):
    store.at(place, wait=0, extras=GRACE)
    store.set_ms(NOW_MS + 5001)
    shard_steps = store.steps()
    shard_steps.hand_over()
    assert shard_steps.claim(1).skipped
    assert not store.raw.exists(store.keys["claims"], store.keys["errors"])
    store.check()


def test_an_entry_given_another_time_is_late_from_then_on(store):
    schedule(store, "a")
    store.set_ms(NOW_MS + 60_000)
    store.reschedule("a", When("at", NOW_MS + 58_000))
    assert store.steps().hand_over().handed_over == 1


@each_way
@pytest.mark.parametrize("late", [False, True], ids=["excused", "late"])
def test_a_pause_counts_only_if_that_was_asked_for(store, relayed, late):
    store.entries.pause(ALL, "", late=late)
    schedule(store, "a", relayed=relayed, share=True)
    changed = store.entries.find("a").changed_us
    shard_steps = store.steps()
    step(store, shard_steps, relayed=relayed)
    store.set_ms(NOW_MS + 60_000)
    store.entries.resume(ALL)
    shard_steps.hand_over()
    if not late and relayed:
        entry = store.entries.find("a")
        assert (entry.extras.grace_ms, entry.extras.excused_ms) == (5000, NOW_MS + 60_000)
        assert (entry.due_ms, entry.changed_us) == (NOW_MS, changed)
        store.set_ms(NOW_MS + 65_000)
    went, _ = step(store, shard_steps, relayed=relayed)
    assert went == ([] if late else ["a"])
    store.check()


@pytest.fixture
def excuse(store):
    """Schedule an entry that is parked when due; let it come back at a time."""

    def come_back(ms=NOW_MS, **options):
        store.entries.pause(ALL, "")
        schedule(store, "a", relayed=True, **options)
        message = store.entries.find("a").message
        store.take("parked", "a")
        store.set_ms(ms)
        store.entries.resume(ALL)
        shard_steps = store.steps()
        shard_steps.hand_over()
        return shard_steps, message

    return come_back


def test_an_excuse_ends_when_the_grace_is_over_once_more(store, excuse):
    shard_steps, _ = excuse(NOW_MS + 60_000)
    store.set_ms(NOW_MS + 65_001)
    assert shard_steps.claim(1).skipped == [("a", "skipped: 65 s late")]


def test_an_excused_entry_keeps_its_key_and_tags(store, excuse):
    extras = Extras(key="k:1", tags=("a:1", "b"), grace_ms=1)
    _, message = excuse(extras=extras, payload="}}:", share=True)
    entry = store.entries.find("a")
    assert entry.extras == Extras("k:1", ("a:1", "b"), 1, NOW_MS)
    assert entry.message == message
    store.check()
