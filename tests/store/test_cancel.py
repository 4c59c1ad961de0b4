"""Cancel: the keys that it removes, and its outcomes."""

import json

import pytest

from celery_delayq.core.clock import When
from celery_delayq.core.store import Outcome
from tests.store.support import (
    FAR_MS,
    NOW_MS,
    TIMEOUT_MS,
)

pytestmark = pytest.mark.core

both_kinds = pytest.mark.parametrize("put", ["schedule", "schedule_relayed"])


@both_kinds
@pytest.mark.parametrize("share", [False, True])
def test_a_cancelled_entry_is_gone_from_every_key_and_its_message_returned(store, put, share):
    getattr(store, put)("a", FAR_MS, payload="x", share=share)
    outcome, cancelled = store.entries.cancel("a")
    assert outcome is Outcome.DONE
    assert json.loads(cancelled.message)["body"] == "x"
    names = ("due", "relay", "records", "templates", "template_uses", "claims", "errors")
    assert [name for name in names if store.raw.exists(store.keys[name])] == []


@both_kinds
def test_other_entries_are_untouched(store, put):
    for task_id in ("a", "aa", "b"):
        getattr(store, put)(task_id, FAR_MS)
    kept = store.record("aa"), store.record("b")
    store.entries.cancel("a")
    assert (store.record("aa"), store.record("b")) == kept
    assert [entry.task_id for entry in store.entries.waiting(0, FAR_MS + 1)] == ["aa", "b"]
    store.check()


@pytest.mark.parametrize("task_id", ["unknown", "", "a" * 512, "é", "*", "due", "a\x00b"])
def test_an_unknown_id_is_not_found_and_changes_nothing(store, task_id):
    store.schedule("a", FAR_MS)
    before = store.snapshot()
    assert store.entries.cancel(task_id) == (Outcome.NOT_FOUND, None)
    assert store.snapshot() == before


def test_a_second_cancel_finds_nothing(store):
    store.schedule("a", FAR_MS)
    assert store.entries.cancel("a")[0] is Outcome.DONE
    assert store.entries.cancel("a") == (Outcome.NOT_FOUND, None)


def test_an_entry_in_its_list_is_handed_over(store):
    store.schedule("a")
    store.steps().hand_over()
    assert store.entries.cancel("a") == (Outcome.HANDED_OVER, None)
    assert store.arrived() == ["a"]


def test_an_acknowledged_entry_is_handed_over(store):
    store.schedule_relayed("a")
    shard_steps = store.steps()
    claimed, *_ = shard_steps.claim(1)
    shard_steps.ack(claimed)
    assert store.entries.cancel("a") == (Outcome.HANDED_OVER, None)


def test_the_answer_handed_over_outlives_ten_thousand_others(store):
    store.flood(10_100)
    store.schedule("a", NOW_MS - 1)
    shard_steps = store.steps(batch_size=1000)
    while shard_steps.hand_over().handed_over:
        pass
    assert store.entries.cancel("a")[0] is Outcome.HANDED_OVER
    assert store.entries.cancel("a10099")[0] is Outcome.HANDED_OVER


def test_a_cancel_means_the_entry_scheduled_anew_after_the_hand_over(store):
    store.schedule("a")
    store.steps().hand_over()
    store.schedule("a", FAR_MS)
    assert store.entries.cancel("a")[0] is Outcome.DONE
    assert store.entries.cancel("a")[0] is Outcome.NOT_FOUND


def test_an_entry_held_by_a_scanner_is_in_flight_and_stays(store):
    store.schedule_relayed("a")
    shard_steps = store.steps()
    claimed, *_ = shard_steps.claim(1)
    before = store.snapshot()
    assert store.entries.cancel("a") == (Outcome.IN_FLIGHT, None)
    assert store.snapshot() == before
    assert shard_steps.ack(claimed) == 1


def test_in_flight_ends_with_the_lease_to_the_millisecond(store):
    store.schedule_relayed("a")
    store.steps(lease=30).claim(1)
    store.set_ms(NOW_MS + 29_999)
    assert store.entries.cancel("a")[0] is Outcome.IN_FLIGHT
    store.set_ms(NOW_MS + 30_000)
    outcome, cancelled = store.entries.cancel("a")
    assert (outcome, bool(cancelled.message)) == (Outcome.UNCERTAIN, True)
    assert store.places("a") == []
    assert store.raw.exists(store.keys["claims"]) == 0


@pytest.mark.parametrize("verdict", ["unsent", "refused"])
def test_an_attempt_that_certainly_failed_leaves_the_answer_certain(store, verdict):
    store.schedule_relayed("a")
    shard_steps = store.steps()
    claimed, *_ = shard_steps.claim(1)
    shard_steps.nack(verdict, claimed, wait=60)
    assert store.entries.cancel("a")[0] is Outcome.DONE
    assert store.raw.exists(store.keys["claims"]) == 0


def test_an_attempt_without_an_answer_makes_the_cancel_uncertain(store):
    store.schedule_relayed("a")
    shard_steps = store.steps()
    claimed, *_ = shard_steps.claim(1)
    shard_steps.nack("unknown", claimed)
    assert store.entries.cancel("a")[0] is Outcome.UNCERTAIN


def test_a_lease_that_was_taken_back_makes_the_cancel_uncertain(store):
    store.schedule_relayed("a")
    shard_steps = store.steps()
    shard_steps.claim(1)
    store.lease_out()
    shard_steps.reclaim()
    assert store.entries.cancel("a")[0] is Outcome.UNCERTAIN


def test_uncertainty_ends_with_the_entry_and_not_with_a_new_one_of_its_id(store):
    store.schedule_relayed("a")
    store.steps().claim(1)
    store.lease_out()
    store.entries.cancel("a")
    store.schedule_relayed("a")
    assert store.entries.cancel("a")[0] is Outcome.DONE


@pytest.mark.parametrize(("before", "outcome"), [("unsent", "DONE"), ("unknown", "UNCERTAIN")])
def test_a_dead_entry_can_be_cancelled(store, before, outcome):
    store.schedule_relayed("a")
    shard_steps = store.steps()
    for verdict in (before, "dead"):
        claimed, *_ = shard_steps.claim(1)
        shard_steps.nack(verdict, claimed, reason="NO_ROUTE")
    assert store.entries.cancel("a")[0] is Outcome[outcome]
    names = ("dead", "errors", "records", "claims")
    assert [name for name in names if store.raw.exists(store.keys[name])] == []


def test_a_cancelled_entry_is_not_claimed_or_moved_any_more(store):
    store.schedule("list")
    store.schedule_relayed("relay")
    store.entries.cancel("list")
    store.entries.cancel("relay")
    shard_steps = store.steps()
    assert shard_steps.hand_over().handed_over == 0
    assert shard_steps.claim(10)[0] == []


def test_a_cancelled_entry_cannot_be_rescheduled(store):
    store.schedule("a", FAR_MS)
    store.entries.cancel("a")
    before = store.snapshot()
    assert store.reschedule("a", When("at", NOW_MS)) == (Outcome.NOT_FOUND, None)
    assert store.snapshot() == before


def test_only_done_is_true():
    assert [outcome for outcome in Outcome if outcome] == [Outcome.DONE]


def test_the_trace_of_what_was_cancelled_is_bounded(store):
    store.schedule("a", FAR_MS)
    store.schedule("b", FAR_MS)
    store.raw.hset(store.keys["tombstones"], mapping={f"h{step}": "h" for step in range(9_998)})
    now_ms = NOW_MS
    for task_id, kept in (("a", [9_999, 0]), ("b", [0, 10_000])):
        # A call about one entry looks at the size only if it begins a generation of answers.
        store.set_ms(now_ms := now_ms + TIMEOUT_MS + 1000)
        store.entries.cancel(task_id)
        assert [
            store.raw.hlen(store.keys[name]) for name in ("tombstones", "tombstones_old")
        ] == kept
    assert store.entries.cancel("b") == (Outcome.NOT_FOUND, None)
