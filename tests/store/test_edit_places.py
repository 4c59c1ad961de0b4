"""An edit that gives an entry another queue, kind, key or tags."""

from dataclasses import replace

import pytest

from celery_delayq.core.clock import from_ms
from celery_delayq.core.store import Outcome, State
from celery_delayq.core.store.changes import Removal, Rewrite
from celery_delayq.core.store.record import Extras, NewRecord, lane_for
from celery_delayq.errors import AlreadyScheduled, KeyHeld
from tests.store import requests
from tests.store.support import FAR_MS, NOW_MS
from tests.store.test_key_order import later, scheduled

pytestmark = pytest.mark.core

GRACE = Extras(grace_ms=5000)


@pytest.mark.parametrize("kind", ["L", "R"])
def test_an_edited_entry_waits_in_the_index_of_its_new_kind(store, kind):
    put = store.schedule_relayed if kind == "L" else store.schedule
    put("a", FAR_MS, extras=Extras("key", ("one",)))

    assert store.edit("a", kind=kind) is Outcome.DONE

    index, other = ("due", "relay") if kind == "L" else ("relay", "due")
    assert (store.score(index, "a"), store.score(other, "a")) == (FAR_MS, None)
    assert store.score("refused", "a") is None
    store.check()


@pytest.fixture
def parked(store):
    """ "a" and "b", of a queue that is paused for a minute: ``parked(late=True)``."""

    def park(**options):
        for task_id in ("a", "b"):
            store.schedule(task_id, extras=GRACE, queue="mail")
        store.entries.pause(lane_for(queue="mail"), "mail", **options)
        store.steps().hand_over()
        store.set_ms(NOW_MS + 60_000)

    return park


def test_an_entry_given_another_queue_leaves_a_pause_which_excuses_it(store, parked):
    parked()

    assert store.edit("a", queue="post") is Outcome.DONE
    assert store.entries.find("a").state is State.SCHEDULED
    store.set_ms(NOW_MS + 65_000)
    assert store.edit("b", queue="post") is Outcome.DONE
    store.set_ms(NOW_MS + 65_001)

    assert [one for one, _ in store.steps().hand_over().skipped] == ["a"]
    assert store.arrived() == ["b"]
    store.check()


def test_a_scanner_wakes_for_one_that_is_due_and_leaves_a_pause(store, parked):
    parked()
    store.raw.hset(store.keys["meta"], "timer", f"{FAR_MS}:scanner")

    store.edit("a", queue="post")

    assert store.raw.hget(store.keys["meta"], "timer") == b"%d:" % (NOW_MS + 60_000)


def test_a_pause_that_counts_as_lateness_excuses_nothing(store, parked):
    parked(late=True)

    store.edit("a", queue="post")

    assert [one for one, _ in store.steps().hand_over().skipped] == ["a"]


def test_a_refused_one_is_tried_at_once_in_its_new_queue(store):
    store.at("refused")

    assert store.edit("a", to="other", kind="L", queue="other") is Outcome.DONE

    assert store.steps().hand_over().handed_over == 1
    assert store.arrived("other") == ["a"]
    store.check()


def test_the_same_queue_leaves_an_edited_entry_in_its_place(store, parked):
    parked()

    assert (
        store.edit("a", queue="mail", extras=replace(GRACE, key="k", tags=("t",))) is Outcome.DONE
    )

    assert store.entries.find("a").state is State.PAUSED
    store.check()


@pytest.mark.parametrize(
    ("hold", "error"), [("", AlreadyScheduled), ("f60000", KeyHeld)], ids=["waits", "holds on"]
)
def test_a_key_that_another_one_has_is_refused_before_anything_is_written(store, hold, error):
    store.schedule("a", FAR_MS, extras=Extras("mine"))
    store.schedule("b", extras=Extras("theirs", hold=hold))
    if hold:
        store.steps().hand_over()
    before = store.record("a")

    with pytest.raises(AlreadyScheduled) as caught:
        store.edit("a", extras=Extras("theirs"))

    assert type(caught.value) is error
    assert (caught.value.task_id, caught.value.holder) == ("a", "b")
    assert not hold or caught.value.until == from_ms(NOW_MS + 60_000)
    assert store.record("a") == before


def test_the_key_of_a_dead_one_can_be_taken(store):
    store.at("dead", "b", extras=Extras("theirs"))
    store.schedule("a", FAR_MS)

    assert store.edit("a", extras=Extras("theirs")) is Outcome.DONE

    assert store.entries.find(b"ktheirs").task_id == "a"


def test_a_change_by_the_old_key_does_not_reach_an_edited_entry(store):
    store.schedule("a", FAR_MS, extras=Extras("old"))
    store.edit("a", extras=Extras("new"))

    assert store.entries.change(b"kold", Removal())[0] is Outcome.NOT_FOUND
    assert (
        store.entries.change(b"kold", Rewrite(None, NewRecord(b"", b"", b"")))[0]
        is Outcome.NOT_FOUND
    )
    assert store.entries.change(b"knew", Removal())[0] is Outcome.DONE


# Late requests, of callers that were interrupted.


def test_a_late_edit_gives_no_key_that_had_another_holder_since(store):
    store.schedule("a", FAR_MS)
    late = requests.edit(store, "a", extras=Extras("k"))
    later(store)
    store.schedule("b", FAR_MS, extras=Extras("k"))
    store.entries.change(b"kk", Removal())

    assert late.send() == [b"stale"]

    assert store.entries.find("a").extras.key == ""
    assert late.anew().answer() == b"done"
    store.check()


def test_a_late_schedule_does_not_take_the_key_that_an_edit_freed_since(store):
    store.schedule("a", FAR_MS, extras=Extras("k"))
    late = scheduled(store, "b")
    later(store)
    assert store.edit("a", extras=Extras("other")) is Outcome.DONE

    verdict, *answer = late.send()

    assert verdict == b"stale" or answer[0].startswith(b"again")
    assert store.entries.find("b") is None


def test_a_late_cancel_by_the_new_key_does_not_reach_an_edited_entry(store):
    store.schedule("a", FAR_MS)
    late = requests.cancel(store, b"knew")
    later(store)
    store.edit("a", extras=Extras("new"))

    assert late.send() == [b"stale"]
    assert store.entries.find("a").extras.key == "new"


def test_a_repeated_edit_is_done_once(store):
    store.schedule("a", FAR_MS, extras=Extras("old"))
    once = requests.edit(store, "a", extras=Extras("new"), kind="R")
    assert once.answer() == b"done"
    later(store)
    store.edit("a", extras=Extras("newer"))

    assert once.anew().answer() == b"done"

    assert store.entries.find("a").extras.key == "newer"
    store.check()
