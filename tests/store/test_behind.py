"""One task can wait behind the holder of its key, which has left or is leaving."""

import pytest

from celery_delayq.contrib.care.checking import check
from celery_delayq.core.clock import When
from celery_delayq.core.store import NewEntry, Outcome
from celery_delayq.core.store.changes import release
from celery_delayq.core.store.extras import Extras
from celery_delayq.core.store.ids import target_of_key
from celery_delayq.core.store.lookup import find
from celery_delayq.core.store.record import destination_for
from celery_delayq.errors import AlreadyScheduled, KeyHeld
from tests.store.support import FAR_MS, NOW_MS, edited, new_record
from tests.store.test_held_keys import (
    END_MS,
    FINISHED,
    SECOND,
    WINDOW,
    deliver,
    ends,
    going_on,
    header,
    say,
    schedule,
)
from tests.store.test_key_order import is_refused, late

KEY = target_of_key("k")
LATE = Extras("k", grace_ms=1, hold=FINISHED.hold)
LOOK_MS = 60 * SECOND


@pytest.fixture
def shard_steps(store):
    return store.steps(lease=5)


@pytest.fixture
def hold(store, shard_steps):
    """The task `a` was delivered, and holds the key."""
    return deliver(store, shard_steps)


def behind(store, task_id="b", due_ms=NOW_MS, extras=FINISHED, conflict="replace", **options):
    """Schedule a task that goes behind the holder."""
    due_ms = schedule(store, task_id, due_ms, extras, conflict=conflict, **options)
    assert store.places(task_id) == ["behind"]
    store.check()
    return due_ms


def delivered(store, shard_steps):
    """The ids that the next step of a scanner delivers."""
    before = len(store.arrived())
    shard_steps.hand_over()
    store.check()
    return store.arrived()[before:]


# It waits, and comes forward.


@pytest.mark.usefixtures("hold")
@pytest.mark.parametrize("conflict", ["replace", "earliest", "latest", "debounce", "debounce 1000"])
def test_it_waits_as_long_as_the_key_is_held(store, shard_steps, conflict):
    behind(store, conflict=conflict)
    store.set_ms(END_MS - 1)
    assert delivered(store, shard_steps) == []
    store.set_ms(END_MS)
    assert delivered(store, shard_steps) == ["b"]
    assert ends(store) == END_MS + 60 * SECOND
    assert find(store.shard, KEY) is None


def test_the_word_of_the_end_lets_it_go(store, shard_steps, hold):
    behind(store)
    assert say(store, hold) is None
    assert store.places("b") == ["due"]
    store.check()
    assert delivered(store, shard_steps) == ["b"]
    assert header(store)["id"] == "b"


def test_it_still_waits_for_its_own_due_time(store, shard_steps, hold):
    behind(store, due_ms=END_MS + 5)
    say(store, hold)
    assert store.score("due", "b") == END_MS + 5
    store.set_ms(END_MS + 4)
    assert delivered(store, shard_steps) == []
    store.set_ms(END_MS + 5)
    assert delivered(store, shard_steps) == ["b"]


def test_overdue_it_is_due_when_the_key_is_free(store, shard_steps, hold):
    behind(store)
    store.set_ms(NOW_MS + 30 * SECOND)
    say(store, hold)
    assert find(store.shard, KEY).due_ms == NOW_MS + 30 * SECOND
    assert store.entries.counts().oldest_overdue_ms == NOW_MS + 30 * SECOND
    assert shard_steps.hand_over().handed_over == 1


def test_its_grace_period_starts_when_the_key_is_free(store, shard_steps, hold):
    behind(store, extras=LATE)
    store.set_ms(NOW_MS + 30 * SECOND)
    say(store, hold)
    store.set_ms(NOW_MS + 30 * SECOND + 1)
    assert delivered(store, shard_steps) == ["b"]


def test_a_word_that_it_goes_on_holds_it_back(store, shard_steps, hold):
    behind(store)
    store.set_ms(NOW_MS + 50 * SECOND)
    say(store, hold, 60 * SECOND)
    store.set_ms(END_MS)
    assert delivered(store, shard_steps) == []


def test_it_does_not_move_the_end(store, shard_steps):
    for hold, ms in (("f5000", 5000), ("f90000", 90_000)):
        deliver(store, shard_steps, extras=Extras("k", hold=hold))
        behind(store)
        assert ends(store) == NOW_MS + ms
        store.entries.cancel("b")
        say(store, header(store))


def test_a_late_word_touches_neither_it_nor_the_next_one(store, shard_steps, hold):
    behind(store)
    say(store, hold)
    say(store, hold)
    assert store.raw.hget(store.keys["holders"], "k") == b"b"
    assert delivered(store, shard_steps) == ["b"]
    behind(store, "c")
    say(store, hold)
    assert store.places("c") == ["behind"]


def test_behind_another_it_needs_no_longer_hold(store, shard_steps, hold):
    behind(store, extras=Extras("k"))
    say(store, hold)
    assert delivered(store, shard_steps) == ["b"]
    assert ends(store) is None


def test_a_scanner_wakes_for_the_end(store, shard_steps, hold):
    shard_steps.hand_over()
    store.raw.hset(store.keys["meta"], "timer", f"{FAR_MS}:")
    behind(store)
    assert store.raw.hget(store.keys["meta"], "timer") == b"%d:" % END_MS
    seen = shard_steps.hand_over()
    assert seen.back == END_MS
    say(store, hold)
    assert shard_steps.hand_over().back is None


@pytest.mark.usefixtures("hold")
def test_no_scanner_looks_at_keys_without_one_behind(shard_steps):
    assert shard_steps.hand_over().back is None


def test_a_word_wakes_a_scanner(store, hold):
    behind(store)
    store.raw.hset(store.keys["meta"], "timer", f"{FAR_MS}:")
    say(store, hold)
    assert store.raw.hget(store.keys["meta"], "timer") == b"%d:" % NOW_MS


def test_large_ones_come_forward_a_few_at_a_time(store):
    shard_steps = store.steps(batch_size=100)
    for number in range(4):
        for name in "ab":
            extras = Extras(f"k{number}", hold=FINISHED.hold)
            payload = "x" * 800_000 * (name == "b")
            store.schedule(f"{name}{number}", extras=extras, payload=payload, conflict="replace")
            shard_steps.hand_over()
    store.set_ms(END_MS)
    shard_steps.hand_over()
    assert 0 < store.raw.zcard(store.keys["behind"]) < 4
    while shard_steps.hand_over().handed_over:
        pass
    assert not store.raw.exists(store.keys["behind"])


# Two behind, and the policies.


@pytest.mark.usefixtures("hold")
@pytest.mark.parametrize("conflict", ["replace", "debounce"])
def test_the_latest_one_wins_and_the_other_is_revoked(store, shard_steps, conflict):
    behind(store)
    [receipt] = schedule_many(store, "c", conflict)
    [gone] = receipt.cancelled
    assert (gone.task_id, gone.outcome, gone.reason) == ("b", Outcome.DONE, "replaced by c")
    assert store.all_places() == {"c": ["behind"]}
    store.check()
    store.set_ms(END_MS)
    assert delivered(store, shard_steps) == ["c"]


def schedule_many(store, task_id, conflict, due_ms=NOW_MS, **options):
    record = new_record(task_id, destination_for("L", "celery"), share=True)
    new = NewEntry(task_id, When("at", due_ms), record.with_extras(FINISHED), conflict)
    return store.entries.schedule([new], revokes="all", **options)


@pytest.mark.usefixtures("hold")
@pytest.mark.parametrize(
    ("conflict", "due_ms", "stays"),
    [
        ("earliest", FAR_MS - 1, "c"),
        ("earliest", FAR_MS + 1, "b"),
        ("latest", FAR_MS - 1, "b"),
        ("latest", FAR_MS + 1, "c"),
    ],
)
def test_policies_compare_it_with_the_one_behind(store, conflict, due_ms, stays):
    behind(store, due_ms=FAR_MS)
    [receipt] = schedule_many(store, "c", conflict, due_ms)
    assert (receipt.task_id, receipt.existed) == (stays, stays == "b")
    assert [one.task_id for one in receipt.cancelled] == ["b" if stays == "c" else "c"]
    assert store.all_places() == {stays: ["behind"]}
    store.check()


@pytest.mark.usefixtures("hold")
def test_the_others_still_answer_with_the_holder(store):
    behind(store)
    with pytest.raises(KeyHeld) as caught:
        schedule(store, "c")
    assert caught.value.holder == "a"
    [receipt] = schedule_many(store, "c", "keep")
    assert (receipt.task_id, receipt.existed) == ("a", True)
    assert store.places("b") == ["behind"]


@pytest.mark.usefixtures("hold")
def test_the_bound_of_debounce_counts_from_the_first_one_behind(store):
    assert behind(store, due_ms=FAR_MS, conflict="debounce 10000") == FAR_MS
    store.set_ms(NOW_MS + 5 * SECOND)
    assert behind(store, "c", FAR_MS, conflict="debounce 10000") == NOW_MS + 10 * SECOND


@pytest.mark.usefixtures("hold")
@pytest.mark.parametrize("conflict", ["replace", "debounce"])
def test_its_own_id_stays_behind(store, shard_steps, conflict):
    behind(store)
    behind(store, due_ms=NOW_MS + 5, conflict=conflict)
    assert find(store.shard, KEY).due_ms == NOW_MS + 5
    store.set_ms(END_MS)
    assert delivered(store, shard_steps) == ["b"]


@pytest.mark.usefixtures("hold")
def test_its_own_id_may_leave_for_another_key(store):
    behind(store)
    schedule(store, "b", extras=Extras("other"), conflict="replace")
    assert store.places("b") == ["due"]
    assert not store.raw.exists(store.keys["behind"])
    store.check()


def test_the_word_and_another_call_in_either_order(store, shard_steps, hold):
    say(store, hold)
    schedule(store, "b", conflict="replace")
    assert store.places("b") == ["due"]
    schedule(store, "c", NOW_MS, conflict="replace")
    assert store.all_places() == {"c": ["due"]}
    assert delivered(store, shard_steps) == ["c"]


# A throttle.


def test_behind_a_window_the_next_one_begins_with_its_own_delivery(store, shard_steps):
    deliver(store, shard_steps, extras=WINDOW)
    behind(store, extras=WINDOW)
    store.set_ms(END_MS)
    assert delivered(store, shard_steps) == ["b"]
    assert ends(store) == END_MS + 60 * SECOND


# The holder comes back, or is still leaving.


def test_a_holder_that_puts_itself_off_still_comes_first(store, shard_steps, hold):
    behind(store)
    schedule(store, "a", NOW_MS + 5, **going_on(hold), supersede=True)
    store.check()
    say(store, hold)
    store.set_ms(END_MS + LOOK_MS)
    assert delivered(store, shard_steps) == ["a"]
    assert store.places("b") == ["behind"]
    say(store, header(store))
    assert delivered(store, shard_steps) == ["b"]


def test_it_looks_again_at_a_holder_that_waits(store, shard_steps, hold):
    behind(store)
    schedule(store, "a", FAR_MS, **going_on(hold), supersede=True)
    store.set_ms(END_MS)
    assert shard_steps.hand_over().back == END_MS + LOOK_MS
    assert find(store.shard, KEY).behind == "a"


def test_while_the_holder_waits_policies_are_about_the_one_behind(store, hold):
    behind(store)
    schedule(store, "a", FAR_MS, **going_on(hold), supersede=True)
    behind(store, "c")
    assert store.places("a") == ["due"]
    assert store.places("b") == []
    with pytest.raises(AlreadyScheduled) as caught:
        schedule(store, "d")
    assert caught.value.holder == "a"


@pytest.mark.parametrize("way", ["cancel", "edit", "replace"])
def test_it_comes_forward_when_a_waiting_holder_goes(store, shard_steps, hold, way):
    behind(store)
    schedule(store, "a", FAR_MS, **going_on(hold), supersede=True)
    if way == "cancel":
        store.entries.cancel("a")
    elif way == "edit":
        store.edit("a", extras=Extras())
    else:
        schedule(store, "a", FAR_MS, Extras("other"), conflict="replace")
    store.check()
    assert delivered(store, shard_steps) == ["b"]


def test_a_waiting_holder_may_be_replaced_under_its_own_id(store, shard_steps, hold):
    behind(store)
    schedule(store, "a", FAR_MS, **going_on(hold), supersede=True)
    schedule(store, "a", NOW_MS, conflict="replace")
    store.check()
    assert delivered(store, shard_steps) == ["a"]
    assert store.places("b") == ["behind"]


@pytest.fixture
def claimed(store, shard_steps):
    store.schedule_relayed("a", extras=FINISHED, share=True)
    return shard_steps.claim(1).entries


def test_behind_one_that_is_being_published(store, shard_steps, claimed):
    behind(store)
    shard_steps.ack(claimed)
    store.check()
    assert ends(store) == END_MS
    assert delivered(store, shard_steps) == []
    say(store, claimed[0].hold)
    assert delivered(store, shard_steps) == ["b"]


def test_a_run_that_ends_before_the_ack_lets_it_go(store, shard_steps, claimed):
    behind(store)
    say(store, claimed[0].hold)
    assert delivered(store, shard_steps) == ["b"]
    shard_steps.ack(claimed)
    store.check()


@pytest.mark.usefixtures("claimed")
def test_the_holder_is_delivered_again_before_it(store, shard_steps):
    behind(store)
    store.set_ms(NOW_MS + 6 * SECOND)
    assert shard_steps.reclaim() == ["a"]
    store.check()
    shard_steps.ack(shard_steps.claim(1).entries)
    assert store.places("b") == ["behind"]
    say(store, hold_of(store))
    assert delivered(store, shard_steps) == ["b"]


def hold_of(store):
    row = store.raw.hget(store.keys["holders"], "k")
    task_id, _, delivery = row.partition(b"\xff")
    return {"id": task_id.decode(), "key": "k", "delivery": delivery.decode()}


def test_a_dead_holder_holds_it_no_longer_than_a_minute(store, shard_steps, claimed):
    behind(store)
    shard_steps.nack("dead", claimed, reason="no")
    store.set_ms(NOW_MS + LOOK_MS)
    assert delivered(store, shard_steps) == ["b"]


def test_a_relayed_task_waits_in_its_own_index(store, shard_steps, hold):
    store.schedule_relayed("b", extras=FINISHED, conflict="replace")
    assert store.places("b") == ["behind"]
    say(store, hold)
    assert store.places("b") == ["relay"]
    [entry] = shard_steps.claim(1).entries
    assert entry.task_id == "b"
    shard_steps.ack([entry])
    store.check()


@pytest.mark.usefixtures("hold")
@pytest.mark.parametrize("way", ["replace", "cancel"])
def test_a_replacement_that_is_late_changes_nothing(store, way):
    behind(store)
    made = late(store)
    if way == "cancel":
        store.entries.cancel(KEY)
    else:
        behind(store, "c")
    before = store.snapshot()
    assert is_refused(made)
    assert store.snapshot() == before


# Its own id.


def test_its_id_may_be_that_of_the_holder(store, shard_steps, hold):
    behind(store, "a")
    behind(store, "b")
    assert store.places("a") == []
    assert ends(store) == END_MS
    say(store, hold)
    assert delivered(store, shard_steps) == ["b"]


@pytest.mark.usefixtures("hold")
def test_a_task_with_the_id_of_the_holder_does_not_free_its_key(store, shard_steps):
    store.schedule_relayed("a", extras=FINISHED, conflict="replace")
    entry = find(store.shard, "a")
    new = edited(entry, kind="R", share=False)
    release(store.shard, [("a", entry.record, new)])
    shard_steps.nack("unsent", shard_steps.claim(1).entries)
    assert store.places("a") == ["relay"]
    assert ends(store) == END_MS
    assert [*check(store.entries)] == []


@pytest.mark.usefixtures("hold")
def test_a_task_with_the_id_of_the_holder_may_get_another_key(store):
    behind(store, "a")
    assert store.edit("a", extras=Extras("other")) is Outcome.DONE
    assert store.places("a") == ["due"]
    assert ends(store) == END_MS
    store.check()
