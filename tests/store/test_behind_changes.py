"""Reads, changes, loads and repairs of a task behind the holder of its key."""

import pytest

from celery_delayq.contrib.care.check import check_store, repair_store
from celery_delayq.core.clock import When
from celery_delayq.core.store import Filter, Listing, Outcome, State, entries
from celery_delayq.core.store.changes import Removal, Rewrite
from celery_delayq.core.store.lookup import find
from celery_delayq.core.store.record import Extras, header_for
from celery_delayq.core.store.selection import read
from tests.store.held_keys import (
    END_MS,
    FINISHED,
    KEY,
    LATE,
    LOOK_MS,
    SECOND,
    behind,
    delivered,
    ends,
    going_on,
    header,
    hold,
    say,
    schedule,
    second,
    shard_steps,
)
from tests.store.support import FAR_MS, NOW_MS, edited, new_record

__all__ = ["hold", "second", "shard_steps"]

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


@pytest.mark.usefixtures("second")
def test_a_check_finds_nothing_wrong_with_one_behind_another(store, hold):
    assert [*check_store(store.entries)] == []
    say(store, hold)
    assert [*check_store(store.entries)] == []


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
