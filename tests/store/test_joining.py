"""`move` joins a message in its script, and Python does so for all others: with equal results."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from celery_delayq.core.clock import MAX_DUE_MS
from celery_delayq.core.store import Outcome
from celery_delayq.core.store.record import Template, destination_for
from celery_delayq.errors import UnreadableRecord
from tests.store.support import LABELS, LINES, NOW_MS, ROUTE, new_record

LIST = destination_for("L", "celery")
TEXTS = st.text(st.characters(blacklist_characters="\n", blacklist_categories=("Cs",)), max_size=30)
# Up to three years around the due time, either way; or not counted from it.
EXPIRIES = st.one_of(
    st.integers(-(10**11), 10**11).map("{:+d}".format),
    st.sampled_from(["null", '"2030-01-01T00:00:00"', "+", "-x", "+1 "]),
)


def joined_by_move(store) -> list[bytes]:
    store.steps().hand_over()
    return store.raw.lrange("celery", 0, -1)


def joined_here(store, task_id) -> list[bytes]:
    try:
        return [store.entries.find(task_id).message]
    except UnreadableRecord:
        return []


@given(
    parts=st.tuples(st.one_of(st.just(""), TEXTS), TEXTS, EXPIRIES, TEXTS, TEXTS, TEXTS),
    due_ms=st.one_of(st.integers(0, NOW_MS), st.integers(0, 10**11)),
    task_id=st.text("ab-:%\n7", min_size=1, max_size=40),
)
def test_both_join_the_same_message(store, parts, due_ms, task_id):
    store.raw.flushdb()
    store.set_ms(NOW_MS)
    store.put(task_id, Template.of(LINES).new_record(LIST, LABELS, parts), due_ms)
    here = joined_here(store, task_id)
    assert joined_by_move(store) == here
    store.check()


@given(parts=st.lists(TEXTS, min_size=4, max_size=8), count=st.integers(9, 11))
def test_both_refuse_what_does_not_fit(store, parts, count):
    store.raw.flushdb()
    store.set_ms(NOW_MS)
    store.put("a", Template.of((LINES * 2)[:count]).new_record(LIST, LABELS, parts), NOW_MS)
    here = joined_here(store, "a")
    assert len(here) == (count == len(LINES) and len(parts) >= 6)
    assert joined_by_move(store) == here


@pytest.mark.parametrize(
    ("expires", "seen"),
    [(f"+{10**18}", b'"9999-12-31T00:00:00'), (f"-{10**18}", b'"1970-01-01T00:00:00')],
)
def test_an_expiry_past_all_dates_is_the_last_or_the_first_one(store, expires, seen):
    parts = ["", "null", expires, '""', '""', '""']
    store.put("a", Template.of(LINES).new_record(LIST, LABELS, parts), NOW_MS)
    [here] = joined_here(store, "a")
    assert seen in here
    assert joined_by_move(store) == [here]


@pytest.mark.parametrize("spoilt", [LINES[0], "\n".join(LINES).replace("tests", "other")])
def test_a_template_that_is_not_what_its_name_says_is_not_used(store, shard_steps, spoilt):
    for task_id, to in (("list", LIST), ("relayed", destination_for("R", ROUTE))):
        store.put(task_id, new_record(task_id, to, share=True), NOW_MS)
    [name] = store.raw.hkeys(store.keys["templates"])
    store.raw.hset(store.keys["templates"], name, spoilt)
    with pytest.raises(UnreadableRecord, match="template is damaged"):
        store.entries.find("list")
    assert shard_steps.hand_over().dead == [("list", "template is damaged")]
    assert store.raw.llen("celery") == 0
    [claimed], *_ = shard_steps.claim(1)
    with pytest.raises(ValueError, match="template is damaged"):
        _ = claimed.message


def test_the_claim_the_list_and_the_cancel_bring_that_message_as_well(store):
    store.schedule_relayed("a", share=True)
    message = store.entries.find("a").message
    assert [one.message for one in store.entries.waiting(0, MAX_DUE_MS)] == [message]
    shard_steps = store.steps(lease=1)
    claimed, *_ = shard_steps.claim(1)
    assert [one.message for one in claimed] == [message]
    shard_steps.nack("unsent", claimed)
    outcome, cancelled = store.entries.cancel("a")
    assert (outcome, cancelled.message) == (Outcome.DONE, message)


@pytest.mark.parametrize("step", ["page", "claim"])
def test_a_template_that_many_share_is_sent_once(store, step):
    for number in range(3):
        store.schedule_relayed(f"a{number}", share=True)
    if step == "page":
        options = {"newest": 0, "after": -1, "order": -1, "first": 0, "before": 2**53}
        options |= {"filter": "", "most": 9}
    else:
        options = {"asker": "t", "lease_ms": 1000, "catch_up": 0, "owes": 0, "last_ms": 0}
    reply = store.scripts.call(step, limit=9, max_bytes=10**6, **options)
    (name,) = store.raw.hkeys(store.keys["templates"])
    assert [one.name for one in reply.templates] == [name]
