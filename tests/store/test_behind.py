"""One task can wait behind the holder of its key, which has left or is leaving."""

import pytest

from celery_delayq.contrib.care.check import check_store, repair_store
from celery_delayq.core.clock import When
from celery_delayq.core.store import Filter, Listing, Outcome, State, entries
from celery_delayq.core.store.changes import Removal, Rewrite
from celery_delayq.core.store.lookup import find
from celery_delayq.core.store.record import Extras, header_for
from celery_delayq.core.store.selection import read
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
from tests.store.support import FAR_MS, NOW_MS, edited, new_record
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


# Reading.


@pytest.mark.usefixtures("second")
def test_the_key_shows_both_until_it_comes_forward(store, hold):
    entry = find(store.shard, KEY)
    assert (entry.task_id, entry.facts.behind, entry.state) == ("b", "a", State.SCHEDULED)
    assert find(store.shard, "b").facts.behind == "a"
    say(store, hold)
    assert find(store.shard, KEY).facts.behind == ""


@pytest.mark.usefixtures("hold")
@pytest.mark.parametrize("tag", [None, "x"])
def test_lists_have_one_behind_another_in_due_order(store, tag):
    for task_id, due_ms in (("x1", NOW_MS - 1), ("x2", NOW_MS + 1)):
        store.schedule(task_id, due_ms, extras=Extras(tags=("x",)))
    behind(store, extras=Extras("k", ("x",)))
    listed = [*store.entries.waiting(Listing(0, FAR_MS))]
    assert [(one.task_id, one.facts.behind) for one in listed] == [
        ("x1", ""),
        ("b", "a"),
        ("x2", ""),
    ]
    backwards = [*store.entries.waiting(Listing(0, FAR_MS, newest_first=True))]
    assert backwards == listed[::-1]


@pytest.mark.usefixtures("second")
def test_one_behind_another_is_scheduled_and_never_overdue(store):
    store.set_ms(NOW_MS + 30 * SECOND)
    counts = store.entries.counts()
    assert (counts.scheduled, counts.overdue, counts.paused) == (1, 0, 0)
    assert counts.oldest_overdue_ms is counts.next_due_ms is None


@pytest.mark.usefixtures("hold")
def test_a_pause_holds_one_behind_another_only_once_it_came_forward(store, shard_steps):
    store.entries.pause(b"*******", "")
    behind(store)
    assert find(store.shard, KEY).state is State.SCHEDULED
    assert [one.state for one in store.entries.waiting(Listing(0, FAR_MS))] == [State.SCHEDULED]
    assert selected(store, State.SCHEDULED) == ["b"]
    assert selected(store, State.PAUSED) == []
    store.set_ms(END_MS)
    assert delivered(store, shard_steps) == []
    assert find(store.shard, KEY).state is State.PAUSED


def selected(store, state):
    chosen = Filter(states=(state,))
    return [
        entry.task_id
        for members in store.pages(chosen)
        for _, entry in read(store.shard, chosen, members)
        if entry.facts.behind == "a"
    ]


# Changes.


@pytest.mark.usefixtures("second")
@pytest.mark.parametrize("who", [KEY, "b"])
def test_a_cancel_removes_the_one_behind_and_the_holder_keeps_the_key(store, who):
    assert store.entries.change(who, Removal())[0] is Outcome.DONE
    assert store.all_places() == {}
    assert ends(store) == END_MS
    store.check()
    behind(store, "c")


@pytest.mark.usefixtures("hold")
@pytest.mark.parametrize(("mode", "told"), [("at", Outcome.DONE), ("now", Outcome.BEHIND)])
def test_one_behind_another_stays_there_when_it_is_moved(store, shard_steps, mode, told):
    behind(store, due_ms=FAR_MS)
    assert store.reschedule(KEY, When("at", NOW_MS), mode=mode) == (told, NOW_MS)
    assert store.places("b") == ["behind"]
    assert store.score("behind", "b") == NOW_MS
    store.check()
    assert delivered(store, shard_steps) == []
    store.set_ms(END_MS)
    assert delivered(store, shard_steps) == ["b"]


@pytest.mark.usefixtures("second")
@pytest.mark.parametrize(
    "change", [{"payload": "x" * 9000}, {"queue": "mail", "to": "mail"}, {"kind": "R"}]
)
def test_one_behind_another_stays_there_when_it_is_edited(store, shard_steps, change):
    assert store.edit("b", **change) is Outcome.DONE
    assert store.places("b") == ["behind"]
    store.check()
    store.set_ms(END_MS)
    shard_steps.hand_over()
    assert find(store.shard, "b") is None or store.places("b") == ["relay"]
    store.check()


@pytest.mark.usefixtures("hold")
@pytest.mark.parametrize("extras", [Extras("other"), Extras()])
@pytest.mark.parametrize("change", [{}, {"kind": "R"}, {"payload": "x" * 9000}])
def test_one_behind_another_that_gets_another_key_waits_no_longer(store, extras, change):
    behind(store, extras=LATE)
    store.set_ms(NOW_MS + 30 * SECOND)
    assert store.edit("b", extras=extras, **change) is Outcome.DONE
    assert store.places("b") == ["relay" if change.get("kind") else "due"]
    assert find(store.shard, "b").due_ms == NOW_MS + 30 * SECOND
    assert ends(store) is not None
    store.check()


@pytest.mark.usefixtures("second")
@pytest.mark.parametrize("size", [1, 9000])
def test_one_behind_another_goes_when_it_is_released(store, shard_steps, size):
    entry = find(store.shard, "b")
    new = edited(entry, "x" * size, share=False)
    outcome, _ = store.entries.change("b", Rewrite(entry.record, new, releases=True))
    assert outcome is Outcome.DONE
    assert store.places("b") == ["due"]
    released = find(store.shard, "b")
    assert (released.extras.key, released.record.labels) == ("", entry.record.labels)
    assert shard_steps.hand_over().handed_over == 1
    assert ends(store) == END_MS
    store.check()


# Loading.


def load(store, task_id="b", place="behind", **more):
    record = new_record(task_id, header_for("L", "celery"), share=True).with_extras(FINISHED)
    old = entries.OldEntry(task_id, NOW_MS, NOW_MS * 1000, record, place, NOW_MS, **more)
    return entries.restore(store.entries, [old])


@pytest.mark.usefixtures("hold")
def test_a_loaded_one_waits_behind_the_holder(store, shard_steps):
    assert load(store) == ["loaded"]
    store.check()
    assert load(store) == ["here"]
    store.set_ms(END_MS)
    assert delivered(store, shard_steps) == ["b"]


def test_the_holder_may_be_loaded_later_than_the_one_behind(store, shard_steps):
    load(store)
    load(store, "a", "waiting")
    assert delivered(store, shard_steps) == ["a"]
    assert store.places("b") == ["behind"]
    assert say(store, header(store)) is None
    assert delivered(store, shard_steps) == ["b"]


def test_one_loaded_without_its_holder_comes_forward_in_a_minute(store, shard_steps):
    load(store)
    assert delivered(store, shard_steps) == []
    store.set_ms(NOW_MS + LOOK_MS)
    assert delivered(store, shard_steps) == ["b"]


def test_a_task_without_its_key_is_loaded_without_it(store):
    assert load(store, "b", "waiting", is_named=False) == ["loaded"]
    assert find(store.shard, "b").extras.key == ""
    assert load(store, "a", "waiting") == ["loaded"]
    store.check()


# Check and repair.


def mended(store):
    found = [*check_store(store.entries)]
    [*repair_store(store.entries, found)]
    assert [*check_store(store.entries)] == []
    return {one.kind for one in found}


LOST = {
    "the holder": (lambda raw, keys: raw.delete(keys["holders"]), {"wrong_key"}),
    "its end": (lambda raw, keys: raw.delete(keys["held"]), {"wrong_key"}),
    "its name": (lambda raw, keys: raw.hdel(keys["holders"], b"\xffk"), {"wrong_key"}),
    "its place": (
        lambda raw, keys: raw.delete(keys["behind"]),
        {"record_without_place", "wrong_key"},
    ),
}


@pytest.mark.usefixtures("second")
@pytest.mark.parametrize(("lose", "kinds"), LOST.values(), ids=LOST)
def test_one_behind_another_never_waits_for_ever(store, shard_steps, lose, kinds):
    lose(store.raw, store.keys)
    assert mended(store) == kinds
    shard_steps.hand_over()
    store.set_ms(END_MS)
    shard_steps.hand_over()
    assert store.arrived() == ["a", "b"]


@pytest.mark.usefixtures("second")
def test_of_two_places_one_behind_another_keeps_that_where_it_waits(store):
    (member,) = store.raw.zrange(store.keys["behind"], 0, -1)
    store.raw.zadd(store.keys["dead"], {member: 1})
    assert mended(store) == {"second_place"}
    assert store.places("b") == ["behind"]


@pytest.mark.usefixtures("second")
def test_a_lost_record_leaves_nothing_after_a_repair(store):
    store.raw.hdel(store.keys["records"], "b")
    assert mended(store) == {"place_without_record", "wrong_key"}
    store.check()


@pytest.mark.usefixtures("second")
@pytest.mark.parametrize("conflict", ["replace", "earliest"])
def test_an_unreadable_one_stays_while_another_waits_behind_the_holder(store, conflict):
    store.raw.hset(store.keys["records"], "b", b"?")
    schedule(store, "c", conflict=conflict)
    assert find(store.shard, "c").facts.behind == "a"
    assert store.raw.hget(store.keys["records"], "b") == b"?"


@pytest.mark.usefixtures("second")
def test_an_unreadable_one_behind_another_becomes_a_dead_letter(store, shard_steps):
    store.raw.hset(store.keys["records"], "b", b"?")
    store.set_ms(END_MS)
    shard_steps.hand_over()
    assert [one for one, _ in shard_steps.claim(1).dead] == ["b"]


def test_a_task_that_lost_its_key_and_goes_on_is_no_finding(store, hold):
    store.set_ms(END_MS)
    schedule(store, "b")
    schedule(store, "a", **going_on(hold))
    store.entries.change("b", Removal())
    assert [*check_store(store.entries)] == []
