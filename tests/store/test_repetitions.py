"""A call takes effect once: each repetition of its request gets the first answer again."""

import pytest

from celery_delayq.core.clock import When
from celery_delayq.core.store import Outcome
from tests.store import requests
from tests.store.requests import cancel, reschedule, schedule
from tests.store.support import FAR_MS, NOW_MS

pytestmark = pytest.mark.core

AT_ONCE, LATER = When("after", 0), When("after", 86_400_000)
LISTS = pytest.mark.parametrize("to", ["celery", None], ids=["list", "relay"])
SHARE = pytest.mark.parametrize("share", [False, True], ids=["whole", "template"])


def is_told_the_same(store, call, first):
    """Whether a repetition changes only the records of calls, and gets that answer."""
    before = store.snapshot()
    store.set_us(requests.now_us(store) + 1)
    return call.answer() == call.anew().answer() == first and store.snapshot() == before


# Scheduling, by the entry's state meanwhile.


@SHARE
@LISTS
@pytest.mark.parametrize("when", [LATER, When("at", FAR_MS)], ids=["after", "at"])
def test_a_repetition_while_the_entry_waits(store, to, when, share):
    call = schedule(store, "a", to=to, when=when, share=share)
    first = call.answer()
    assert int(first) == FAR_MS
    store.set_ms(NOW_MS + 1000)
    assert is_told_the_same(store, call, first)
    store.check()


@SHARE
def test_a_repetition_after_the_hand_over(store, share):
    call, shard_steps = schedule(store, "a", when=AT_ONCE, share=share), store.steps()
    first = call.answer()
    shard_steps.hand_over()
    assert is_told_the_same(store, call, first)
    assert shard_steps.hand_over().handed_over == 0
    assert store.arrived() == ["a"]


def test_a_repetition_during_and_after_a_relay(store):
    call, shard_steps = schedule(store, "a", when=AT_ONCE, to=None), store.steps()
    first = call.answer()
    claimed, *_ = shard_steps.claim(1)
    assert is_told_the_same(store, call, first)
    assert store.places("a") == ["leased"]
    shard_steps.ack(claimed)
    assert is_told_the_same(store, call, first)
    assert store.places("a") == []


def test_a_repetition_after_a_cancel(store):
    call = schedule(store, "a", when=LATER)
    first = call.answer()
    store.entries.cancel("a")
    assert is_told_the_same(store, call, first)
    assert store.places("a") == []


def test_a_repetition_after_a_cancel_and_another_entry_under_the_id(store):
    call = schedule(store, "a", when=LATER)
    first = call.answer()
    store.entries.cancel("a")
    store.schedule("a", 7)
    assert is_told_the_same(store, call, first)
    assert store.score("due", "a") == 7


def test_a_repetition_after_a_reschedule(store):
    call = schedule(store, "a")
    first = call.answer()
    store.reschedule("a", When("at", FAR_MS + 7))
    assert is_told_the_same(store, call, first)
    assert store.score("due", "a") == FAR_MS + 7


def test_a_repetition_after_a_refusal_by_the_broker(store):
    call, shard_steps = schedule(store, "a", to=None, when=AT_ONCE), store.steps()
    first = call.answer()
    shard_steps.nack("refused", shard_steps.claim(1)[0], wait=60)
    assert is_told_the_same(store, call, first)
    assert store.score("refused", "a") == NOW_MS + 60_000


def test_a_repetition_after_twenty_thousand_others_have_left(store):
    """Enough to replace both generations of tombstones; a call's answer is kept by time."""
    call, shard_steps = schedule(store, "a", when=AT_ONCE), store.steps(batch_size=1000)
    first = call.answer()
    shard_steps.hand_over()
    for _ in range(2):
        store.flood(10_000)
        while shard_steps.hand_over().handed_over:
            pass
    assert not store.raw.hexists(store.keys["tombstones"], "a")
    assert not store.raw.hexists(store.keys["tombstones_old"], "a")
    store.raw.delete("celery")
    assert is_told_the_same(store, call, first)
    assert shard_steps.hand_over().handed_over == 0


def test_a_repetition_of_a_conflict_when_the_id_is_free_again(store):
    store.schedule("a", NOW_MS)
    call = schedule(store, "a")
    assert call.answer() == b"scheduled"
    store.steps().hand_over()
    assert is_told_the_same(store, call, b"scheduled")
    assert store.places("a") == []


def test_a_repetition_of_what_was_due_too_late(store):
    call = schedule(store, "a", when=When("at", 2**53))
    assert call.answer() == b"late"
    assert is_told_the_same(store, call, b"late")


def test_a_repetition_of_a_superseding_entry(store):
    store.schedule_relayed("a", NOW_MS)
    shard_steps = store.steps()
    shard_steps.claim(1)
    call = schedule(store, "a", to=None, when=AT_ONCE, supersede=True)
    first = call.answer()
    shard_steps.ack(shard_steps.claim(1)[0])
    assert is_told_the_same(store, call, first)
    assert store.places("a") == []


# A slice of a bulk has one answer for all.


@SHARE
@LISTS
def test_a_repetition_of_a_slice(store, to, share):
    store.schedule("held")
    call = schedule(store, "a", "held", "b", "a", to=to, share=share)
    first = call.answer()
    assert first.split() == [b"%d" % FAR_MS, b"scheduled", b"%d" % FAR_MS, b"scheduled"]
    assert is_told_the_same(store, call, first)
    store.check()


def test_a_repetition_of_a_slice_brings_back_nothing_that_left(store):
    call, shard_steps = schedule(store, "moved", "cancelled", when=LATER), store.steps()
    first = call.answer()
    store.reschedule("moved", When("at", NOW_MS))
    shard_steps.hand_over()
    assert store.entries.cancel("cancelled")[0] is Outcome.DONE
    assert is_told_the_same(store, call, first)
    assert [store.places(one) for one in ("moved", "cancelled")] == [[], []]
    assert shard_steps.hand_over().handed_over == 0


# Cancelling.


def test_a_repetition_of_a_cancel_takes_no_later_entry(store):
    store.schedule("a", FAR_MS)
    call = cancel(store, "a")
    assert call.answer() == b"done"
    store.set_ms(NOW_MS + 1)
    store.schedule("a", 7)
    assert is_told_the_same(store, call, b"done")
    assert store.score("due", "a") == 7


def test_only_the_first_answer_to_a_cancel_has_the_message(store):
    store.schedule("a", FAR_MS, payload="x")
    call = cancel(store, "a")
    verdict, answer, (told,) = call.send()
    assert (verdict, answer, told.place) == (b"answer", b"done", 1)
    assert int(told.when) == NOW_MS * 1000
    assert b"x" in told.message
    assert call.send() == [b"answer", b"done", []]


@pytest.mark.parametrize("gone", [False, True])
def test_a_repetition_of_a_cancel_that_came_too_late(store, gone):
    if gone:
        store.schedule("a", NOW_MS)
        store.steps().hand_over()
    call = cancel(store, "a")
    first = call.answer()
    assert first == (b"handed_over" if gone else b"not_found")
    store.set_ms(NOW_MS + 1)
    store.schedule("a", FAR_MS)
    assert is_told_the_same(store, call, first)
    assert store.places("a") == ["due"]


def test_a_repetition_of_a_cancel_under_a_lease_when_the_lease_is_over(store):
    store.schedule_relayed("a", NOW_MS)
    store.steps(lease=1).claim(1)
    call = cancel(store, "a")
    assert call.answer() == b"in_flight"
    store.set_ms(NOW_MS + 2000)
    assert is_told_the_same(store, call, b"in_flight")
    assert store.places("a") == ["leased"]


# Rescheduling.


def test_a_repetition_of_a_reschedule_by_so_much_moves_it_once(store):
    store.schedule("a", FAR_MS)
    call = reschedule(store, "a", "by", 1000)
    first = call.answer()
    assert first == b"done:%d" % (FAR_MS + 1000)
    assert is_told_the_same(store, call, first)
    assert store.score("due", "a") == FAR_MS + 1000


@pytest.mark.parametrize("mode", ["at", "after", "by"])
def test_a_repetition_of_a_reschedule_undoes_no_later_one(store, mode):
    store.schedule("a", FAR_MS)
    call = reschedule(store, "a", mode, FAR_MS if mode == "at" else 1000)
    first = call.answer()
    store.set_ms(NOW_MS + 1)
    store.reschedule("a", When("at", FAR_MS + 7))
    assert is_told_the_same(store, call, first)
    assert store.score("due", "a") == FAR_MS + 7


def test_a_repetition_of_a_reschedule_after_the_hand_over(store):
    store.schedule("a", FAR_MS)
    call = reschedule(store, "a", "at", NOW_MS)
    first = call.answer()
    store.steps().hand_over()
    assert is_told_the_same(store, call, first)
    assert store.arrived() == ["a"]


def test_a_repetition_of_a_reschedule_that_found_nothing(store):
    call = reschedule(store, "a")
    assert call.answer() == b"not_found"
    store.set_ms(NOW_MS + 1)
    store.schedule("a", NOW_MS)
    assert is_told_the_same(store, call, b"not_found")
    assert store.score("due", "a") == NOW_MS


def test_a_repetition_of_a_reschedule_past_the_latest_time(store):
    store.schedule("a", FAR_MS)
    call = reschedule(store, "a", "at", 2**53)
    assert call.answer() == b"too_late"
    assert is_told_the_same(store, call, b"too_late")
