"""States owed to a result backend: the cancel notes them; they stay until they are stored."""

import json

import pytest

from celery_delayq.core.store import Outcome, scanner_steps
from tests.store.support import FAR_MS, NOW_MS, TIMEOUT_MS

CALL_MS = TIMEOUT_MS  # the longest call of these processes


def owed(shard_steps):
    return [(one.task_id, one.outcome) for one in shard_steps.owed()]


def test_a_cancel_notes_what_it_owes_and_a_scanner_is_given_it_when_the_call_has_ended(
    store, shard_steps
):
    store.schedule("a", FAR_MS, payload="x")
    outcome, cancelled = store.entries.cancel("a", owes=True)
    assert outcome is Outcome.DONE
    assert json.loads(cancelled.message)["body"] == "x"

    store.set_ms(NOW_MS + CALL_MS - 1)
    assert owed(shard_steps) == []
    store.set_ms(NOW_MS + CALL_MS)
    assert shard_steps.owed() == [cancelled]


def test_a_settled_state_is_no_longer_owed(store, shard_steps):
    store.schedule("a", FAR_MS)
    store.schedule("b", FAR_MS)
    _, cancelled = store.entries.cancel("a", owes=True)
    store.entries.cancel("b", owes=True)
    store.entries.mark_stored(cancelled)
    store.set_ms(NOW_MS + CALL_MS)
    shard_steps.mark_stored(given := shard_steps.owed())
    assert [one.task_id for one in given] == ["b"]
    assert not store.raw.exists(store.keys["outbox"], store.keys["outbox_messages"])


def test_a_state_given_to_one_scanner_is_given_to_no_other_for_a_minute(store):
    first, second = store.steps(), store.steps()
    store.schedule("a", FAR_MS)
    store.entries.cancel("a", owes=True)
    store.set_ms(NOW_MS + CALL_MS)
    assert owed(first) == [("a", Outcome.DONE)]
    assert owed(second) == []
    store.set_ms(NOW_MS + CALL_MS + 60_000)
    assert owed(second) == [("a", Outcome.DONE)]


def test_once_the_messages_reach_so_many_bytes_the_rest_waits_for_the_next_call(
    store, shard_steps, monkeypatch
):
    for task_id in ("a", "b"):
        store.schedule(task_id, FAR_MS)
        _, cancelled = store.entries.cancel(task_id, owes=True)
    store.set_ms(NOW_MS + CALL_MS)
    monkeypatch.setattr(scanner_steps, "MAX_BYTES", len(cancelled.message))
    assert [owed(shard_steps) for _ in range(3)] == [
        [("a", Outcome.DONE)],
        [("b", Outcome.DONE)],
        [],
    ]


def test_an_uncertain_cancel_is_owed_as_such(store, shard_steps):
    store.schedule_relayed("a")
    shard_steps.nack("unknown", shard_steps.claim(1)[0])
    outcome, _ = store.entries.cancel("a", owes=True)
    assert outcome is Outcome.UNCERTAIN
    store.set_ms(NOW_MS + CALL_MS)
    assert owed(shard_steps) == [("a", Outcome.UNCERTAIN)]


def test_a_new_task_under_the_id_is_not_revoked_by_what_was_owed_for_the_earlier(
    store, shard_steps
):
    store.schedule("a", FAR_MS)
    store.entries.cancel("a", owes=True)
    store.schedule("a", FAR_MS)
    store.set_ms(NOW_MS + CALL_MS)
    assert owed(shard_steps) == []
    assert not store.raw.exists(store.keys["outbox"], store.keys["outbox_messages"])


def test_to_settle_an_earlier_cancel_leaves_what_a_later_one_owes(store, shard_steps):
    store.schedule("a", FAR_MS)
    _, first = store.entries.cancel("a", owes=True)
    store.set_ms(NOW_MS + 1)
    store.schedule("a", FAR_MS, payload="later")
    _, later = store.entries.cancel("a", owes=True)
    store.entries.mark_stored(first)
    store.set_ms(NOW_MS + 1 + CALL_MS)
    assert shard_steps.owed() == [later]


def test_a_cancel_that_owes_nothing_notes_nothing(store):
    store.schedule("a", FAR_MS)
    store.entries.cancel("a")
    assert not store.raw.exists(store.keys["outbox"], store.keys["outbox_messages"])


@pytest.mark.parametrize("share", [True, False])
def test_the_message_is_whole_whatever_the_records_form(store, share):
    store.schedule("a", FAR_MS, payload="x", share=share)
    message = store.entries.find("a").message
    _, cancelled = store.entries.cancel("a", owes=True)
    assert cancelled.message == message


def test_a_place_whose_message_is_gone_is_dropped(store, shard_steps):
    store.raw.zadd(store.keys["outbox"], {"a": 0})
    assert owed(shard_steps) == []
    assert not store.raw.exists(store.keys["outbox"])


def test_large_messages_are_given_as_far_as_the_limit_goes_and_one(store, monkeypatch):
    monkeypatch.setattr("celery_delayq.core.store.scanner_steps.MAX_BYTES", 3000)
    for number in range(5):
        store.schedule(f"a{number}", FAR_MS, payload="x" * 2000)
        store.entries.cancel(f"a{number}", owes=True)
    store.set_ms(NOW_MS + CALL_MS)
    assert [len(owed(store.steps())) for _ in range(4)] == [2, 2, 1, 0]
