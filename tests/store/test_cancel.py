"""Cancel: its answer, and what stays in Redis; test_outcomes.py has its outcome in each place."""

import json

import pytest

from celery_delayq.core.store import Listing, Outcome
from celery_delayq.core.store.changes import Removal
from tests.store.support import FAR_MS, NOW_MS, TIMEOUT_MS

pytestmark = pytest.mark.core

both_kinds = pytest.mark.parametrize("put", ["schedule", "schedule_relayed"])


@both_kinds
@pytest.mark.parametrize("share", [False, True])
def test_the_message_of_a_cancelled_entry_is_returned(store, put, share):
    getattr(store, put)("a", FAR_MS, payload="x", share=share)
    outcome, change = store.entries.change("a", Removal())
    assert outcome is Outcome.DONE
    assert json.loads(change.cancelled.message)["body"] == "x"


@both_kinds
def test_other_entries_are_untouched(store, put):
    for task_id in ("a", "aa", "b"):
        getattr(store, put)(task_id, FAR_MS)
    kept = store.record("aa"), store.record("b")
    store.entries.change("a", Removal())
    assert (store.record("aa"), store.record("b")) == kept
    assert [entry.task_id for entry in store.entries.waiting(Listing(0, FAR_MS + 1))] == ["aa", "b"]
    store.check()


@pytest.mark.parametrize("task_id", ["unknown", "", "a" * 512, "é", "*", "due", "a\x00b"])
def test_an_unknown_id_is_not_found_and_changes_nothing(store, task_id):
    store.schedule("a", FAR_MS)
    before = store.snapshot()
    assert store.entries.change(task_id, Removal())[0] is Outcome.NOT_FOUND
    assert store.snapshot() == before


def test_a_cancel_means_the_entry_scheduled_anew_after_the_hand_over(store):
    store.schedule("a")
    store.steps().hand_over()
    store.schedule("a", FAR_MS)
    assert store.entries.change("a", Removal())[0] is Outcome.DONE
    assert store.entries.change("a", Removal())[0] is Outcome.NOT_FOUND


def test_the_trace_of_what_was_cancelled_is_bounded(store):
    store.schedule("a", FAR_MS)
    store.schedule("b", FAR_MS)
    store.raw.hset(store.keys["tombstones"], mapping={f"h{step}": "h" for step in range(9_998)})
    now_ms = NOW_MS
    for task_id, kept in (("a", [9_999, 0]), ("b", [0, 10_000])):
        # A call about one entry looks at the size only if it begins a generation of answers.
        store.set_ms(now_ms := now_ms + TIMEOUT_MS + 1000)
        store.entries.change(task_id, Removal())
        assert [
            store.raw.hlen(store.keys[name]) for name in ("tombstones", "tombstones_old")
        ] == kept
    assert store.entries.change("b", Removal())[0] is Outcome.NOT_FOUND
