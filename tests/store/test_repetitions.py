"""A call takes effect once: each repetition of its request gets the first answer again."""

import pytest

from celery_delayq.core.clock import When
from celery_delayq.core.store import Outcome
from celery_delayq.core.store.changes import Removal
from tests.store import requests
from tests.store.requests import cancel, reschedule, schedule
from tests.store.support import FAR_MS, NOW_MS

pytestmark = pytest.mark.core

AT_ONCE, LATER = When("after", 0), When("after", 86_400_000)
NOW, FAR = b"%d" % NOW_MS, b"%d" % FAR_MS
LISTS = pytest.mark.parametrize("to", ["celery", None], ids=["list", "relay"])
SHARE = pytest.mark.parametrize("share", [False, True], ids=["whole", "template"])


def is_told_the_same(store, call, first):
    """Whether a repetition changes only the records of calls, and gets that answer."""
    before = store.snapshot()
    store.set_us(requests.now_us(store) + 1)
    return call.answer() == call.anew().answer() == first and store.snapshot() == before


@SHARE
@LISTS
@pytest.mark.parametrize("when", [LATER, When("at", FAR_MS)], ids=["after", "at"])
def test_a_repetition_while_the_entry_waits_writes_nothing(store, to, when, share):
    call = schedule(store, "a", to=to, when=when, share=share)
    assert call.answer() == FAR
    store.set_ms(NOW_MS + 1000)
    assert is_told_the_same(store, call, FAR)
    store.check()


CALLS = {
    "schedule": lambda store: schedule(store, "a", when=AT_ONCE),
    "share": lambda store: schedule(store, "a", when=AT_ONCE, share=True),
    "relay": lambda store: schedule(store, "a", when=AT_ONCE, to=None),
    "supersede": lambda store: schedule(store, "a", when=AT_ONCE, to=None, supersede=True),
    "wait": lambda store: schedule(store, "a", when=LATER),
    "far": lambda store: schedule(store, "a", when=When("at", 2**53)),
    "cancel": lambda store: cancel(store, "a"),
    "move": lambda store: reschedule(store, "a", "at", NOW_MS),
    "move after": lambda store: reschedule(store, "a", "after", 1000),
    "move by": lambda store: reschedule(store, "a", "by", 1000),
    "move far": lambda store: reschedule(store, "a", "at", 2**53),
}
STEPS = {
    "due": lambda store: store.schedule("a", NOW_MS),
    "waits": lambda store: store.schedule("a", FAR_MS),
    "for a relay": lambda store: store.schedule_relayed("a", NOW_MS),
    "cancelled": lambda store: store.entries.change("a", Removal()),
    "moved": lambda store: store.reschedule("a", When("at", FAR_MS + 7)),
    "delivered": lambda store: store.steps().hand_over(),
    "claimed": lambda store: store.take("leased", "a", lease=1),
    "published": lambda store: store.take("left", "a"),
    "refused": lambda store: store.take("refused", "a"),
    "two seconds": lambda store: store.set_ms(NOW_MS + 2000),
}
BY = b"done:d%d" % (FAR_MS + 1000)
# Before, the call, its first answer, meanwhile, and where the entry then is, until when.
ROWS = [
    ("", "schedule", NOW, "delivered", {}),
    ("", "share", NOW, "delivered", {}),
    ("", "relay", NOW, "claimed", {"leased": NOW_MS + 1000}),
    ("", "relay", NOW, "published", {}),
    ("", "relay", NOW, "refused", {"refused": NOW_MS + 60_000}),
    ("", "wait", FAR, "cancelled", {}),
    ("", "wait", FAR, "cancelled, due", {"due": NOW_MS}),
    ("", "wait", FAR, "moved", {"due": FAR_MS + 7}),
    ("due", "schedule", b"scheduled", "delivered", {}),
    ("", "far", b"late", "", {}),
    ("for a relay, claimed", "supersede", b"%d" % (NOW_MS + 2), "published", {}),
    ("waits", "cancel", b"done", "due", {"due": NOW_MS}),
    ("", "cancel", b"not_found", "waits", {"due": FAR_MS}),
    ("due, delivered", "cancel", b"handed_over", "waits", {"due": FAR_MS}),
    ("for a relay, claimed", "cancel", b"in_flight", "two seconds", {"leased": NOW_MS + 1001}),
    ("waits", "move by", BY, "", {"due": FAR_MS + 1000}),
    ("waits", "move", b"done:d%d" % NOW_MS, "moved", {"due": FAR_MS + 7}),
    ("waits", "move after", b"done:d%d" % (NOW_MS + 1001), "moved", {"due": FAR_MS + 7}),
    ("waits", "move by", BY, "moved", {"due": FAR_MS + 7}),
    ("waits", "move", b"done:d%d" % NOW_MS, "delivered", {}),
    ("", "move", b"not_found", "due", {"due": NOW_MS}),
    ("waits", "move far", b"too_late", "", {"due": FAR_MS}),
]


def take(store, steps):
    for step in filter(None, steps.split(", ")):
        STEPS[step](store)
        store.set_us(requests.now_us(store) + 1000)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]}; {row[1]}; {row[3]}")
def test_a_repetition_gets_the_first_answer_and_changes_nothing(store, row):
    before, call, first, meanwhile, left = row
    take(store, before)
    made = CALLS[call](store)
    assert made.answer() == first
    take(store, meanwhile)
    assert is_told_the_same(store, made, first)
    assert {place: store.score(place, "a") for place in store.places("a")} == left
    store.check()


def test_a_repetition_after_twenty_thousand_others_have_left_brings_nothing_back(store):
    """Enough to replace both generations of tombstones; a call's answer is kept by time."""
    call, shard_steps = CALLS["schedule"](store), store.steps(batch_size=1000)
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


def test_only_the_first_answer_to_a_cancel_has_the_message(store):
    store.schedule("a", FAR_MS, payload="x")
    call = cancel(store, "a")
    verdict, answer, (told,) = call.send()
    assert (verdict, answer, told.place) == (b"answer", b"done", 1)
    assert int(told.when) == NOW_MS * 1000
    assert b"x" in told.message
    assert call.send() == [b"answer", b"done", []]


# A slice of a bulk has one answer for all.


@SHARE
@LISTS
def test_a_repetition_of_a_slice_gets_all_its_answers(store, to, share):
    store.schedule("held")
    call = schedule(store, "a", "held", "b", "a", to=to, share=share)
    first = call.answer()
    assert first.split() == [FAR, b"scheduled", FAR, b"scheduled"]
    assert is_told_the_same(store, call, first)
    store.check()


def test_a_repetition_of_a_slice_brings_back_nothing_that_left(store):
    call, shard_steps = schedule(store, "moved", "cancelled", when=LATER), store.steps()
    first = call.answer()
    store.reschedule("moved", When("at", NOW_MS))
    shard_steps.hand_over()
    assert store.entries.change("cancelled", Removal())[0] is Outcome.DONE
    assert is_told_the_same(store, call, first)
    assert [store.places(one) for one in ("moved", "cancelled")] == [[], []]
    assert shard_steps.hand_over().handed_over == 0
