"""A template is kept as long as records share it; each step joins the same message from it."""

import json
from datetime import timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from celery_delayq.core.clock import EPOCH, MAX_DUE_MS, When
from celery_delayq.core.store import Entries, Listing, NewEntry, Outcome, entries
from celery_delayq.core.store.changes import Removal
from celery_delayq.core.store.entries import OldEntry
from celery_delayq.core.store.record import Template, header_for
from celery_delayq.errors import UnreadableRecord
from tests.store.arguments import arguments
from tests.store.support import FAR_MS, LABELS, LINES, MEMBERSHIP, NOW_MS, ROUTE, new_record

pytestmark = pytest.mark.core


def templates(store) -> dict[bytes, int]:
    """Name -> uses; the names of both hashes are the same, or the check fails."""
    store.check()
    return {name: int(n) for name, n in store.raw.hgetall(store.keys["template_uses"]).items()}


def hand_over(_, shard_steps):
    shard_steps.hand_over()


def ack(store, _):
    store.take("left", "a")


def cancel(store, _):
    store.entries.change("a", Removal())


def cancel_of_dead(store, _):
    store.take("dead", "a")
    store.entries.change("a", Removal())


def cancel_of_lost(store, _):
    store.take("lapsed", "a")
    assert store.entries.change("a", Removal())[0] is Outcome.UNCERTAIN


@pytest.mark.parametrize("leave", [hand_over, ack, cancel, cancel_of_dead, cancel_of_lost])
def test_the_last_record_takes_its_template_along_and_the_one_before_does_not(
    store, shard_steps, leave
):
    put = store.schedule if leave in (hand_over, cancel) else store.schedule_relayed
    put("b", FAR_MS, share=True)
    put("a", NOW_MS - 1, share=True)
    assert list(templates(store).values()) == [2]
    leave(store, shard_steps)
    assert list(templates(store).values()) == [1]
    store.entries.change("b", Removal())
    put("a", NOW_MS - 1, share=True)
    leave(store, shard_steps)
    assert templates(store) == {}
    assert not store.raw.exists(store.keys["templates"])


def spoil(store):
    [name] = store.raw.hkeys(store.keys["templates"])
    text = store.raw.hget(store.keys["templates"], name)
    store.raw.hset(store.keys["templates"], name, text.replace(b"remind", b"REMIND"))
    return text


def schedule_anew(store):
    store.schedule("new", share=True)


def schedule_some(store):
    records = {one: new_record(one, b"1L6:celery", share=True) for one in ("new", "newer")}
    store.entries.schedule([NewEntry(one, When("at", 0), new) for one, new in records.items()])


def edit_another(store):
    store.edit("whole")


def load_one(store):
    record = new_record("new", b"1L6:celery", share=True)
    entries.restore(store.entries, [OldEntry("new", NOW_MS, NOW_MS * 1000, record)])


@pytest.mark.parametrize("way", [schedule_anew, schedule_some, edit_another, load_one])
def test_a_template_whose_text_was_damaged_is_sent_again_and_nothing_dies_of_it(store, way):
    store.schedule("a", share=True)
    store.schedule("whole")
    text = spoil(store)
    way(store)
    assert store.raw.hvals(store.keys["templates"]) == [text]
    store.check()
    ids = store.raw.hkeys(store.keys["records"])
    seen = store.steps().hand_over()
    assert (seen.handed_over, seen.dead) == (len(ids), [])
    assert {"a", "whole"} <= set(store.arrived())


def test_a_template_is_sent_once_per_process(store):
    store.schedule("a", FAR_MS, share=True)
    received = store.raw.info("stats")["total_net_input_bytes"]
    store.schedule("b", FAR_MS, share=True)
    again = store.raw.info("stats")["total_net_input_bytes"] - received
    stranger = Entries([store.new_scripts()], MEMBERSHIP)
    record = new_record("c", b"1L6:celery", share=True)
    stranger.schedule([NewEntry("c", When("at", FAR_MS), record)])
    first = store.raw.info("stats")["total_net_input_bytes"] - received - again
    stranger.shards[0].scripts.connection.close()
    assert first - again > len(record.template) / 2
    assert list(templates(store).values()) == [3]


# `hand_over` joins a message in its script, and Python does so for all others: with equal results.

LIST = header_for("L", "celery")
TEXTS = st.text(st.characters(blacklist_characters="\n", blacklist_categories=("Cs",)), max_size=30)
# Up to three years around the due time, either way; or not counted from it.
EXPIRIES = st.one_of(
    st.integers(-(10**11), 10**11).map("{:+d}".format),
    st.sampled_from(["null", '"2030-01-01T00:00:00"', "+", "-x", "+1 ", "+-5000", "+nan"]),
)


def joined_by_script(store) -> list[bytes]:
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
def test_a_script_and_python_join_the_same_message(store, parts, due_ms, task_id):
    store.raw.flushdb()
    store.set_ms(NOW_MS)
    store.put(task_id, Template.of(LINES).new_record(LIST, LABELS, parts), due_ms)
    here = joined_here(store, task_id)
    assert joined_by_script(store) == here
    store.check()


@given(parts=st.lists(TEXTS, min_size=4, max_size=8), count=st.integers(9, 11))
def test_a_script_and_python_refuse_a_message_that_does_not_fit(store, parts, count):
    store.raw.flushdb()
    store.set_ms(NOW_MS)
    store.put("a", Template.of((LINES * 2)[:count]).new_record(LIST, LABELS, parts), NOW_MS)
    here = joined_here(store, "a")
    assert len(here) == (count == len(LINES) and len(parts) >= 6)
    assert joined_by_script(store) == here


@pytest.mark.parametrize(
    ("expires", "seen"),
    [(f"+{10**18}", b'"9999-12-31T00:00:00'), (f"-{10**18}", b'"1970-01-01T00:00:00')],
)
def test_an_expiry_past_all_dates_is_the_last_or_the_first_one(store, expires, seen):
    parts = ["", "null", expires, '""', '""', '""']
    store.put("a", Template.of(LINES).new_record(LIST, LABELS, parts), NOW_MS)
    [here] = joined_here(store, "a")
    assert seen in here
    assert joined_by_script(store) == [here]


def put_expiring(store, due_ms, expires_ms):
    store.put("a", new_record("a", LIST, share=True, expires=f"+{expires_ms}"), due_ms)


def expires_at(message, ms):
    """Whether a message expires at that time, to the microsecond as `datetime` writes it."""
    wanted = (EPOCH + timedelta(milliseconds=ms)).isoformat(timespec="microseconds")
    return json.loads(message)["headers"]["expires"] == wanted


@given(st.integers(0, MAX_DUE_MS), st.integers(0, 10**12))
@example(951_782_400_000, 0)  # 2000-02-29, the leap day of a century year
@example(4_107_542_399_999, 1)  # 2100-03-01, in a century year without a leap day
@example(1_767_225_599_999, 0)  # the last millisecond of a year
@example(0, 0)
def test_the_date_of_a_relative_expiry_is_the_one_that_datetime_writes(store, due_ms, expires_ms):
    store.raw.flushdb()
    store.set_ms(NOW_MS)
    put_expiring(store, due_ms, expires_ms)
    assert expires_at(store.entries.find("a").message, due_ms + expires_ms)


def test_a_relative_expiry_moves_with_the_due_time(store):
    put_expiring(store, FAR_MS, 60_000)
    store.reschedule("a", When("at", NOW_MS))
    store.steps().hand_over()
    assert expires_at(store.raw.rpop("celery"), NOW_MS + 60_000)


@pytest.mark.parametrize("spoilt", [LINES[0], "\n".join(LINES).replace("tests", "other")])
def test_a_template_that_is_not_what_its_name_says_is_not_used(store, shard_steps, spoilt):
    for task_id, to in (("list", LIST), ("relayed", header_for("R", ROUTE))):
        store.put(task_id, new_record(task_id, to, share=True), NOW_MS)
    [name] = store.raw.hkeys(store.keys["templates"])
    store.raw.hset(store.keys["templates"], name, spoilt)
    with pytest.raises(UnreadableRecord, match="template is damaged"):
        store.entries.find("list")
    assert shard_steps.hand_over().dead == [("list", "template is damaged")]
    assert store.raw.llen("celery") == 0
    [claimed] = store.take("leased", "relayed")
    with pytest.raises(ValueError, match="template is damaged"):
        _ = claimed.message


def test_the_claim_the_list_and_the_cancel_bring_that_message_as_well(store):
    store.schedule_relayed("a", share=True)
    message = store.entries.find("a").message
    assert [one.message for one in store.entries.waiting(Listing(0, MAX_DUE_MS))] == [message]
    claims = store.take("unsent", "a")
    assert [one.message for one in claims] == [message]
    outcome, change = store.entries.change("a", Removal())
    assert (outcome, change.cancelled.message) == (Outcome.DONE, message)


@pytest.mark.parametrize("step", ["page", "claim"])
def test_a_template_that_many_share_is_sent_once(store, step):
    for number in range(3):
        store.schedule_relayed(f"a{number}", share=True)
    reply = store.scripts.call(step, **arguments(step, limit=9))
    (name,) = store.raw.hkeys(store.keys["templates"])
    assert [one.name for one in reply.templates] == [name]
