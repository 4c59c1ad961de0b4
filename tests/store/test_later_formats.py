"""Records that a later release wrote: this one cancels, moves and pauses them, and delivers none.

Here their format is 2, with a flag and a letter that this release does not know; tests/versions has
a release that reads such ones.
"""

import pytest

from celery_delayq.core.clock import When
from celery_delayq.core.store import Filter, Listing, Outcome
from celery_delayq.core.store.changes import Move, Removal
from celery_delayq.core.store.record import FLAGS, FORM, RUN_NOW, Extras, header_for, lane_for
from celery_delayq.errors import AlreadyScheduled, UnreadableRecord
from tests.store.support import FAR_MS, NOW_MS, PLACES, new_record

pytestmark = pytest.mark.core

HELD_BACK = tuple(place for place in PLACES if place != "leased")
EXTRAS = Extras("key", ("tag",), grace_ms=0, others=(b"\xffmore",))
LATER = 32  # flag
SAYS = "its record has format 2, and this release reads formats up to 1"


def header_end(record):
    return record.index(b":") + 1 + int(record[2 : record.index(b":")])


def make_later(store, task_id="a"):
    text = bytearray(store.record(task_id))
    at = header_end(text)
    text[0] = ord("2")
    text[at + FLAGS] += LATER
    text[at + FORM] += 2
    store.raw.hset(store.keys["records"], task_id, bytes(text))
    return bytes(text)


def rest_of(record):
    """The part from the flags on."""
    return record[header_end(record) + FLAGS :]


@pytest.mark.parametrize("relayed", [False, True], ids=["direct", "relayed"])
def test_a_scanner_lays_a_due_one_aside_and_goes_on(store, relayed):
    schedule = store.schedule_relayed if relayed else store.schedule
    schedule("a", extras=EXTRAS, share=True)
    record = make_later(store)
    schedule("b", share=True)
    store.set_ms(NOW_MS + 1000)

    steps = store.steps()
    seen = steps.hand_over()
    claims = steps.claim(9)

    assert seen.handed_over + len(claims.entries) == 1
    assert (seen.dead, claims.dead, seen.skipped, claims.skipped) == ([], [], [], [])
    assert (store.places("a"), store.record("a")) == (["parked"], record)
    assert store.entries.counts().paused == 1


@pytest.mark.parametrize("place", HELD_BACK)
def test_a_record_of_a_later_release_is_cancelled_in_any_place_and_leaves_nothing(store, place):
    store.at(place, extras=EXTRAS)
    make_later(store)

    outcome, change = store.entries.change("a", Removal())

    assert outcome in (Outcome.DONE, Outcome.UNCERTAIN)
    assert change.cancelled.message == b""  # only a later release can read it
    assert not [
        name
        for name in ("records", "templates", "template_uses", "tags", "holders", "claims", "errors")
        if store.raw.exists(store.keys[name])
    ]
    assert store.places("a") == []


@pytest.mark.parametrize("place", HELD_BACK)
def test_a_record_of_a_later_release_is_moved_from_any_place_and_keeps_all_else(store, place):
    store.at(place, extras=EXTRAS)
    make_later(store)
    before = store.record("a")

    outcome, due_ms = store.reschedule("a", When("at", FAR_MS))

    assert outcome in (Outcome.DONE, Outcome.UNCERTAIN)
    assert due_ms == FAR_MS
    assert store.places("a") in (["due"], ["relay"])
    assert rest_of(store.record("a")) == rest_of(before)


def test_only_the_flag_to_run_at_once_changes_with_a_move_of_a_later_record(store):
    store.at("due", extras=EXTRAS)
    make_later(store)
    known = store.record("a")[header_end(store.record("a")) + FLAGS]

    def flags():
        return store.record("a")[header_end(store.record("a")) + FLAGS] - known

    store.entries.change("a", Move(mode="now"))
    assert flags() == RUN_NOW
    store.entries.change("a", Move(mode="now"))
    assert flags() == RUN_NOW
    store.entries.change("a", Move(When("at", FAR_MS)))
    assert flags() == 0


def test_no_expiry_is_read_from_a_record_that_this_release_does_not_know(store):
    expires = '"2096-10-03T00:00:00+00:00"'
    record = new_record("a", header_for("L", "celery"), share=True, expires=expires)
    store.put("a", record, FAR_MS)
    assert store.entries.change("a", Move(When("at", NOW_MS + 1)))[1].expires == expires.strip('"')
    make_later(store)

    assert store.entries.change("a", Move(When("at", NOW_MS + 2)))[1].expires == ""


def test_one_laid_aside_is_found_where_it_is_and_waits_again_once_moved(store):
    store.at("due")
    make_later(store)
    store.steps().hand_over()

    assert store.reschedule("a", When("at", NOW_MS))[0] is Outcome.DONE
    assert store.places("a") == ["due"]
    store.steps().hand_over()
    assert store.places("a") == ["parked"]
    assert store.entries.change("a", Removal())[0] is Outcome.DONE


def test_a_pause_is_no_concern_of_one_laid_aside(store):
    store.at("due")
    make_later(store)
    store.steps().hand_over()

    store.entries.pause(lane_for(), "")
    store.entries.resume(lane_for())
    store.steps().hand_over()

    assert store.places("a") == ["parked"]
    assert not store.entries.pauses()


def test_a_selection_finds_a_record_of_a_later_release_and_a_listing_leaves_it_out(store):
    store.schedule("a", FAR_MS, extras=EXTRAS, share=True)
    make_later(store)

    assert list(store.entries.waiting(Listing(0, FAR_MS + 1))) == []
    with pytest.raises(UnreadableRecord, match=SAYS):
        store.entries.find("a")
    assert [len(page) for page in store.pages(Filter(tags=("tag",)))] == [1]


def test_key_and_id_of_a_record_of_a_later_release_are_taken(store):
    store.schedule("a", FAR_MS, extras=EXTRAS, share=True)
    make_later(store)

    with pytest.raises(AlreadyScheduled):
        store.schedule("a", FAR_MS)
    with pytest.raises(AlreadyScheduled):
        store.schedule("b", FAR_MS, extras=Extras("key"))
    store.schedule("b", FAR_MS, extras=Extras("key"), conflict="replace")
    assert store.record("a") is None


def test_damage_where_each_format_is_alike_makes_it_dead(store):
    store.at("due")
    text = make_later(store)
    at = header_end(text)
    store.raw.hset(store.keys["records"], "a", text[: at + 6] + b"tomorrow     " + text[at + 19 :])

    assert store.steps().hand_over().dead == [("a", "record is damaged")]


def test_an_addition_of_a_later_release_stays_through_a_change(store):
    extras = Extras("key", ("tag",), others=(b"\xffone", b"\xffother"))
    store.schedule("a", FAR_MS, extras=extras, share=True)

    store.edit("a", "new", extras=Extras("key", ("another",), others=extras.others))
    store.reschedule("a", When("at", NOW_MS))
    store.schedule("only", FAR_MS, extras=Extras(others=(b"\xffone",)), share=True)

    found = store.entries.find("a")
    assert found.extras == Extras("key", ("another",), others=extras.others)
    assert store.entries.find("only").extras.others == (b"\xffone",)
    assert store.raw.zcard(store.keys["tags"]) == 1
    store.check()
    assert store.steps().hand_over().handed_over == 1
