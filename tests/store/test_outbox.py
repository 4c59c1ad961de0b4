"""States owed to a result backend: the cancel notes them; they stay until they are stored."""

import pytest

from celery_delayq.core.store import Outcome
from celery_delayq.core.store.changes import Removal
from tests.store.support import FAR_MS, NOW_MS, TIMEOUT_MS

pytestmark = pytest.mark.core

CALL_MS = TIMEOUT_MS  # the longest call of these processes


def owed(shard_steps):
    return [(one.task_id, one.outcome) for one in shard_steps.owed()]


def cancel(store, *ids, **options):
    """Schedule and cancel tasks; returns the last of them, as it is owed."""
    for task_id in ids:
        store.schedule(task_id, FAR_MS, **options)
        outcome, change = store.entries.change(task_id, Removal("caller"))
        assert outcome is Outcome.DONE
    return change.cancelled


def is_empty(store):
    return not store.raw.exists(store.keys["outbox"], store.keys["outbox_messages"])


@pytest.mark.parametrize("share", [True, False])
def test_a_cancel_notes_what_it_owes_and_a_scanner_is_given_it_when_the_call_has_ended(
    store, shard_steps, share
):
    store.schedule("a", FAR_MS, payload="x", share=share)
    message = store.entries.find("a").message
    cancelled = store.entries.change("a", Removal("caller"))[1].cancelled
    assert cancelled.message == message

    store.set_ms(NOW_MS + CALL_MS - 1)
    assert owed(shard_steps) == []
    store.set_ms(NOW_MS + CALL_MS)
    assert shard_steps.owed() == [cancelled]


def test_a_settled_state_is_no_longer_owed(store, shard_steps):
    store.entries.mark_stored(cancel(store, "b", "a"))
    store.set_ms(NOW_MS + CALL_MS)
    shard_steps.mark_stored(given := shard_steps.owed())
    assert [one.task_id for one in given] == ["b"]
    assert is_empty(store)


def test_a_state_given_to_one_scanner_is_given_to_no_other_for_a_minute(store, shard_steps):
    second = store.steps()
    cancel(store, "a")
    store.set_ms(NOW_MS + CALL_MS)
    assert owed(shard_steps) == [("a", Outcome.DONE)]
    assert owed(second) == []
    store.set_ms(NOW_MS + CALL_MS + 60_000)
    assert owed(second) == [("a", Outcome.DONE)]


@pytest.mark.parametrize(
    ("messages", "given"), [(1, [1, 1, 1, 1, 1, 0]), (1.5, [2, 2, 1, 0]), (9, [5, 0])]
)
def test_once_the_messages_reach_so_many_bytes_the_rest_waits_for_the_next_call(
    store, limits, messages, given
):
    message = cancel(store, *(f"a{number}" for number in range(5)), payload="x" * 2000).message
    store.set_ms(NOW_MS + CALL_MS)
    limits(hand_over_bytes=int(messages * len(message)))
    assert [len(owed(store.steps())) for _ in given] == given


def test_a_new_task_under_the_id_is_not_revoked_by_what_was_owed_for_the_earlier(
    store, shard_steps
):
    cancel(store, "a")
    store.schedule("a", FAR_MS)
    store.set_ms(NOW_MS + CALL_MS)
    assert owed(shard_steps) == []
    assert is_empty(store)


@pytest.mark.parametrize("later_ms", [0, 1])
def test_a_revoked_that_was_stored_after_the_id_s_new_task_had_left_is_wrong(store, later_ms):
    cancelled = cancel(store, "a")
    store.set_ms(NOW_MS + later_ms)
    store.schedule("a", NOW_MS)
    store.steps().hand_over()
    assert store.entries.mark_stored(cancelled)


def test_to_settle_an_earlier_cancel_leaves_what_a_later_one_owes(store, shard_steps):
    first = cancel(store, "a")
    store.set_ms(NOW_MS + 1)
    later = cancel(store, "a", payload="later")
    store.entries.mark_stored(first)
    store.set_ms(NOW_MS + 1 + CALL_MS)
    assert shard_steps.owed() == [later]


def test_a_place_whose_message_is_gone_is_dropped(store, shard_steps):
    store.raw.zadd(store.keys["outbox"], {"a": 0})
    assert owed(shard_steps) == []
    assert is_empty(store)
