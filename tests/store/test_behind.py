"""One task can wait behind the holder of its key, which has left or is leaving."""

import pytest

from celery_delayq.contrib.care.check import check_store
from celery_delayq.core.clock import When
from celery_delayq.core.store import Outcome
from celery_delayq.core.store.changes import Removal, Rewrite
from celery_delayq.core.store.lookup import find
from celery_delayq.core.store.record import Extras
from celery_delayq.errors import AlreadyScheduled, KeyHeld
from tests.store.held_keys import (
    END_MS,
    FINISHED,
    KEY,
    LATE,
    LOOK_MS,
    SECOND,
    WINDOW,
    answer,
    behind,
    claimed,
    deliver,
    delivered,
    ends,
    going_on,
    header,
    hold,
    row,
    say,
    schedule,
    second,
    shard_steps,
)
from tests.store.support import FAR_MS, NOW_MS, edited
from tests.store.test_key_order import is_refused, late

__all__ = ["claimed", "hold", "second", "shard_steps"]


@pytest.fixture
def put_off(store, hold, second):
    """The task `a` waits again, and `b` is behind it."""
    schedule(store, "a", FAR_MS, **going_on(hold), supersede=True)
    store.check()


# It waits, and comes forward.


@pytest.mark.usefixtures("hold")
@pytest.mark.parametrize("conflict", ["replace", "earliest", "latest", "debounce", "debounce 1000"])
def test_an_entry_behind_another_waits_as_long_as_the_key_is_held(store, shard_steps, conflict):
    behind(store, conflict=conflict)
    store.set_ms(END_MS - 1)
    assert delivered(store, shard_steps) == []
    store.set_ms(END_MS)
    assert delivered(store, shard_steps) == ["b"]
    assert ends(store) == END_MS + 60 * SECOND
    assert find(store.shard, KEY) is None


@pytest.mark.parametrize(("due_ms", "goes_at"), [(NOW_MS, NOW_MS), (END_MS + 5, END_MS + 5)])
def test_the_word_of_the_end_lets_the_one_behind_go_when_it_is_due(
    store, shard_steps, hold, due_ms, goes_at
):
    behind(store, due_ms=due_ms)
    assert say(store, hold) is None
    assert store.score("due", "b") == goes_at
    store.check()
    store.set_ms(goes_at - 1)
    assert delivered(store, shard_steps) == []
    store.set_ms(goes_at)
    assert delivered(store, shard_steps) == ["b"]
    assert header(store)["id"] == "b"


@pytest.mark.usefixtures("second")
def test_an_overdue_one_behind_is_due_when_the_key_is_free(store, shard_steps, hold):
    store.set_ms(NOW_MS + 30 * SECOND)
    say(store, hold)
    assert find(store.shard, KEY).due_ms == NOW_MS + 30 * SECOND
    assert store.entries.counts().oldest_overdue_ms == NOW_MS + 30 * SECOND
    assert shard_steps.hand_over().handed_over == 1


def test_the_grace_period_of_one_behind_starts_when_the_key_is_free(store, shard_steps, hold):
    behind(store, extras=LATE)
    store.set_ms(NOW_MS + 30 * SECOND)
    say(store, hold)
    store.set_ms(NOW_MS + 30 * SECOND + 1)
    assert delivered(store, shard_steps) == ["b"]


@pytest.mark.parametrize("seconds", [5, 90])
def test_an_entry_that_goes_behind_another_does_not_move_the_end(store, shard_steps, seconds):
    deliver(store, shard_steps, extras=Extras("k", hold=f"f{seconds * SECOND}"))
    behind(store)
    assert ends(store) == NOW_MS + seconds * SECOND


def test_one_behind_another_needs_no_longer_hold_of_its_own(store, shard_steps, hold):
    behind(store, extras=Extras("k"))
    say(store, hold)
    assert delivered(store, shard_steps) == ["b"]
    assert ends(store) is None


def test_a_scanner_wakes_for_the_end_of_a_key_with_one_behind_and_for_a_word(
    store, shard_steps, hold
):
    assert shard_steps.hand_over().back is None
    for wakes_at, step in ((END_MS, behind), (NOW_MS, lambda store: say(store, hold))):
        store.raw.hset(store.keys["meta"], "timer", f"{FAR_MS}:")
        step(store)
        assert store.raw.hget(store.keys["meta"], "timer") == b"%d:" % wakes_at
        assert shard_steps.hand_over().back == (END_MS if step is behind else None)


def test_large_entries_come_forward_a_few_at_a_time(store):
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
@pytest.mark.parametrize(
    ("conflict", "due_ms", "stays"),
    [
        ("replace", FAR_MS, "c"),
        ("debounce", FAR_MS, "c"),
        ("earliest", FAR_MS - 1, "c"),
        ("earliest", FAR_MS + 1, "b"),
        ("latest", FAR_MS - 1, "b"),
        ("latest", FAR_MS + 1, "c"),
    ],
)
def test_a_policy_keeps_one_of_two_behind_and_the_other_is_revoked(
    store, shard_steps, conflict, due_ms, stays
):
    behind(store, due_ms=FAR_MS)
    receipt = answer(store, conflict, task_id="c", due_ms=due_ms, revokes="all")
    assert (receipt.task_id, receipt.existed) == (stays, stays == "b")
    gone, why = ("b", "replaced by c") if stays == "c" else ("c", "kept b")
    told = [(one.task_id, one.outcome, one.reason) for one in receipt.cancelled]
    assert told == [(gone, Outcome.DONE, why)]
    assert store.all_places() == {stays: ["behind"]}
    store.check()
    store.set_ms(FAR_MS + 1)
    assert delivered(store, shard_steps) == [stays]


@pytest.mark.usefixtures("second")
def test_reject_and_keep_still_answer_with_the_holder(store):
    error = answer(store, "", task_id="c")
    assert (type(error), error.holder) == (KeyHeld, "a")
    receipt = answer(store, "keep", task_id="c")
    assert (receipt.task_id, receipt.existed) == ("a", True)
    assert store.places("b") == ["behind"]


@pytest.mark.usefixtures("hold")
def test_the_bound_of_debounce_counts_from_the_first_one_behind(store):
    assert behind(store, due_ms=FAR_MS, conflict="debounce 10000") == FAR_MS
    store.set_ms(NOW_MS + 5 * SECOND)
    assert behind(store, "c", FAR_MS, conflict="debounce 10000") == NOW_MS + 10 * SECOND


# A throttle.


def test_behind_a_window_the_next_one_begins_with_its_own_delivery(store, shard_steps):
    deliver(store, shard_steps, extras=WINDOW)
    behind(store, extras=WINDOW)
    store.set_ms(END_MS)
    assert delivered(store, shard_steps) == ["b"]
    assert ends(store) == END_MS + 60 * SECOND


# Changes of the holder, and of the entry behind it.


def ended(store):
    say(store, store.run)


def goes_on(store):
    say(store, store.run, 60 * SECOND)


def runs_anew(store):
    store.run = header(store)


def puts_off(store):
    schedule(store, "a", FAR_MS, **going_on(store.run), supersede=True)


def moved(store):
    store.reschedule("a", When("at", NOW_MS))


def cancelled(store):
    store.entries.change("a", Removal())


def edited_away(store):
    store.edit("a", extras=Extras())


def anew(task_id, extras=FINISHED):
    return lambda store: schedule(store, task_id, NOW_MS, extras, conflict="replace")


OTHER = Extras("other")
# `a` runs, and `b` is behind it: a number sets the clock, in seconds; a list has the ids that the
# next step delivers; a text is the place of `b`.
ROWS = {
    "its run goes on": [50, goes_on, 60, []],
    "its end comes late": [ended, ended, ["b"], anew("b"), "behind", ended, "behind"],
    "its run puts itself off": [
        *(puts_off, ended, 120, [], moved, ["a"], "behind", runs_anew, ended, ["b"]),
    ],
    "it waits, and is cancelled": [puts_off, cancelled, ["b"]],
    "it waits, and gets another key": [puts_off, edited_away, ["b"]],
    "it waits, and its id is scheduled under another key": [puts_off, anew("a", OTHER), ["b", "a"]],
    "it waits, and its id is scheduled anew": [puts_off, anew("a"), ["a"], "behind"],
    "its own id is scheduled anew": [anew("b"), "behind", 60, ["b"]],
    "its own id is scheduled under another key": [anew("b", OTHER), "due", ["b"]],
}


@pytest.mark.parametrize("steps", ROWS.values(), ids=ROWS)
def test_one_behind_leaves_after_the_holder_and_not_before(store, shard_steps, hold, second, steps):
    store.run = hold
    for step in steps:
        match step:
            case int():
                store.set_ms(NOW_MS + step * SECOND)
            case list():
                assert delivered(store, shard_steps) == step
            case str():
                assert store.places("b") == [step]
            case _:
                step(store)
                store.check()


@pytest.mark.usefixtures("put_off")
def test_a_scanner_looks_again_at_a_holder_that_waits(store, shard_steps):
    store.set_ms(END_MS)
    assert shard_steps.hand_over().back == END_MS + LOOK_MS
    assert find(store.shard, KEY).facts.behind == "a"


@pytest.mark.usefixtures("put_off")
def test_while_the_holder_waits_policies_are_about_the_one_behind(store):
    behind(store, "c")
    assert store.places("a") == ["due"]
    assert store.places("b") == []
    with pytest.raises(AlreadyScheduled) as caught:
        schedule(store, "d")
    assert caught.value.holder == "a"


def test_one_behind_a_task_being_published_leaves_when_its_run_has_ended(
    store, shard_steps, claimed
):
    behind(store)
    shard_steps.ack(claimed)
    store.check()
    assert ends(store) == END_MS
    assert delivered(store, shard_steps) == []
    say(store, claimed[0].hold)
    assert delivered(store, shard_steps) == ["b"]


def test_a_run_that_ends_before_the_ack_lets_the_one_behind_go(store, shard_steps, claimed):
    behind(store)
    say(store, claimed[0].hold)
    assert delivered(store, shard_steps) == ["b"]
    shard_steps.ack(claimed)
    store.check()


@pytest.mark.usefixtures("claimed")
def test_the_holder_is_delivered_again_before_the_one_behind(store, shard_steps):
    behind(store)
    store.set_ms(NOW_MS + 6 * SECOND)
    assert shard_steps.reclaim() == ["a"]
    store.check()
    store.take("left", "a")
    assert store.places("b") == ["behind"]
    task_id, _, delivery = row(store).partition(b"\xff")
    say(store, {"id": task_id.decode(), "key": "k", "delivery": delivery.decode()})
    assert delivered(store, shard_steps) == ["b"]


def test_a_dead_holder_holds_the_one_behind_no_longer_than_a_minute(store, shard_steps, claimed):
    behind(store)
    shard_steps.nack("dead", claimed, reason="no")
    store.set_ms(NOW_MS + LOOK_MS)
    assert delivered(store, shard_steps) == ["b"]


def test_a_relayed_task_waits_in_its_own_index(store, hold):
    store.schedule_relayed("b", extras=FINISHED, conflict="replace")
    assert store.places("b") == ["behind"]
    say(store, hold)
    assert store.places("b") == ["relay"]
    store.take("left", "b")
    store.check()


@pytest.mark.usefixtures("second")
@pytest.mark.parametrize("way", ["replace", "cancel"])
def test_a_replacement_that_is_late_changes_nothing(store, way):
    made = late(store)
    if way == "cancel":
        store.entries.change(KEY, Removal())
    else:
        behind(store, "c")
    before = store.snapshot()
    assert is_refused(made)
    assert store.snapshot() == before


# The holder's own id.


def test_one_behind_may_have_the_id_of_the_holder(store, shard_steps, hold):
    behind(store, "a")
    behind(store, "b")
    assert store.places("a") == []
    assert ends(store) == END_MS
    say(store, hold)
    assert delivered(store, shard_steps) == ["b"]


@pytest.mark.usefixtures("hold")
def test_a_task_with_the_id_of_the_holder_does_not_free_its_key(store):
    store.schedule_relayed("a", extras=FINISHED, conflict="replace")
    entry = find(store.shard, "a")
    new = edited(entry, kind="R", share=False)
    store.entries.change("a", Rewrite(entry.record, new, releases=True))
    store.take("unsent", "a")
    assert ends(store) == END_MS
    assert [*check_store(store.entries)] == []


@pytest.mark.usefixtures("hold")
def test_a_task_with_the_id_of_the_holder_may_get_another_key(store):
    behind(store, "a")
    assert store.edit("a", extras=Extras("other")) is Outcome.DONE
    assert store.places("a") == ["due"]
    assert ends(store) == END_MS
    store.check()
