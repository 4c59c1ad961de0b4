"""A key may be held longer than its entry waits: until its run has finished, or for a while."""

import itertools
import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from celery_delayq.core.clock import When, from_ms
from celery_delayq.core.store import KeyHolder, Listing, Outcome
from celery_delayq.core.store.changes import Move, Removal
from celery_delayq.core.store.lookup import held_keys
from celery_delayq.core.store.record import Extras
from celery_delayq.errors import InFlight, KeyHeld
from tests.store.arguments import arguments
from tests.store.held_keys import (
    END_MS,
    FINISHED,
    KEY,
    SECOND,
    WINDOW,
    answer,
    claimed,
    deliver,
    ends,
    going_on,
    header,
    hold,
    is_free,
    publish,
    row,
    say,
    schedule,
    shard_steps,
)
from tests.store.support import FAR_MS, NOW_MS

__all__ = ["claimed", "hold", "shard_steps"]

pytestmark = pytest.mark.core


@pytest.mark.parametrize("share", [False, True])
@pytest.mark.parametrize("key", ["k", 'a "key"\\', "\u00e9\u4e2d\x01\x7f", "%1"])
def test_a_message_names_the_held_key_the_delivery_and_the_time(store, shard_steps, key, share):
    schedule(store, "a", NOW_MS, Extras(key, ("x",), hold="f5"), share=share)
    [before] = store.entries.waiting(Listing(0, FAR_MS))
    number, changed = before.record.seen[:6], before.record.changed_us

    shard_steps.hand_over()

    delivery = f"{int.from_bytes(number, 'big')}.{changed}"
    assert header(store) == {"id": "a", "key": key, "delivery": delivery, "ms": 5}
    message = json.loads(store.raw.lindex("celery", 0))
    del message["headers"]["delayq_hold"]
    assert message == json.loads(before.message)


@pytest.mark.parametrize("extras", [Extras("k"), WINDOW, Extras(tags=("x",))])
def test_a_message_without_a_key_until_finished_has_no_hold_header(store, shard_steps, extras):
    assert deliver(store, shard_steps, extras=extras) is None


@pytest.mark.usefixtures("hold")
@pytest.mark.parametrize("ms", [-1, 0])
def test_a_key_is_held_once_delivered_until_the_end_in_time(store, ms):
    store.set_ms(END_MS + ms)
    assert is_free(store) is (ms == 0)
    store.check()


# A worker's word.


def test_a_word_of_the_end_frees_the_key(store, hold):
    assert say(store, hold) is None
    assert not store.raw.exists(store.keys["holders"], store.keys["held"])
    assert is_free(store)


@pytest.mark.parametrize("wrong", [{"id": "b"}, {"key": "other"}, {"delivery": "2.1"}])
def test_a_word_about_something_else_frees_nothing(store, hold, wrong):
    assert say(store, hold, **wrong) == END_MS
    assert not is_free(store)


@pytest.mark.parametrize(
    "later",
    [
        lambda store, steps: deliver(store, steps, "b"),
        deliver,
        lambda store, _: schedule(store, "a"),
    ],
    ids=["another one delivered", "its own id delivered anew", "its own id waiting"],
)
def test_a_word_that_comes_late_does_not_touch_a_later_holder(store, shard_steps, hold, later):
    say(store, hold)
    store.set_ms(NOW_MS + 1)
    later(store, shard_steps)
    before = row(store), ends(store)

    say(store, hold)
    say(store, hold, SECOND, lease=1)

    assert (row(store), ends(store)) == before
    store.check()


# When, in seconds; for how long, and whether as a lease; the end after it.
WORDS = {
    "a run that goes on moves the end": [(50, 60, 0, 110)],
    "an earlier word comes late": [(50, 60, 0, 110), (50, 30, 0, 110)],
    "a word after the end comes too late": [(60, 60, 0, 60)],
    "it was free": [(0, 0, 0, None), (0, 60, 0, None)],
    "a lease ends earlier than the hand-over said": [(0, 10, 1, 10)],
    "a shorter lease comes late": [(0, 10, 1, 10), (0, 9.999, 1, 10)],
    "a lease does not shorten a retry": [(0, 90, 0, 90), (0, 10, 1, 90)],
    "a lease that has run out is taken up again": [(0, 10, 1, 10), (11, 10, 1, 21)],
}


@pytest.mark.parametrize("words", WORDS.values(), ids=WORDS)
def test_each_word_of_a_run_sets_the_end(store, hold, words):
    for second, seconds, lease, end in words:
        store.set_ms(NOW_MS + second * SECOND)
        told = say(store, hold, round(seconds * SECOND), lease=lease)
        assert told == (end and NOW_MS + end * SECOND)
        store.check()


def test_a_lease_of_a_forgotten_delivery_ends_nothing_earlier(store, hold):
    store.raw.delete(store.keys["tombstones"])
    assert say(store, hold, 10 * SECOND, lease=1) == END_MS


def test_ended_holders_are_forgotten_a_batch_at_a_time(store):
    shard_steps = store.steps(batch_size=2)
    for number in range(5):
        schedule(store, f"a{number}", NOW_MS, Extras(f"k{number}", hold="f1000"))
    while shard_steps.hand_over().handed_over:
        pass
    assert store.raw.zcard(store.keys["held"]) == 5

    store.set_ms(NOW_MS + SECOND)
    for left in (3, 1, 0):
        shard_steps.hand_over()
        assert store.raw.zcard(store.keys["held"]) == store.raw.hlen(store.keys["holders"]) == left


@pytest.mark.usefixtures("hold")
def test_forgetting_an_ended_holder_spares_the_entry_that_waits_meanwhile(store, shard_steps):
    store.set_ms(END_MS)
    schedule(store, "b")
    shard_steps.hand_over()
    assert row(store) == b"b"
    store.check()


# The answer to another task with the key.


@pytest.mark.parametrize("task_id", ["new", "a"])
@pytest.mark.parametrize("leave", [deliver, publish], ids=["delivered", "being published"])
def test_the_holder_refuses_any_other_task_and_its_own_id_or_is_kept(
    store, shard_steps, leave, task_id
):
    leave(store, shard_steps)
    before = store.snapshot()
    # A run that schedules its own id before the ack.
    options = {"task_id": task_id, "supersede": leave is publish and task_id == "a"}

    error = answer(store, "", revokes="all", **options)
    assert (type(error), error.task_id, error.holder) == (KeyHeld, task_id, "a")
    assert store.snapshot() == before

    receipt = answer(store, "keep", revokes="all", **options)
    assert (receipt.task_id, receipt.existed) == ("a", True)
    told = [(one.task_id, one.reason) for one in receipt.cancelled]
    assert told == ([] if task_id == "a" else [("new", "kept a")])
    store.check()


@pytest.mark.usefixtures("claimed")
def test_the_id_of_a_task_being_published_is_in_flight(store):
    assert type(answer(store, "replace", task_id="a")) is InFlight


@pytest.mark.usefixtures("hold")
@pytest.mark.parametrize("again", [False, True], ids=["", "its id is scheduled anew"])
def test_each_step_knows_by_the_key_that_its_task_was_handed_over(store, again):
    if again:
        schedule(store, "a", extras=Extras("other"))
    assert store.entries.find(KEY) is None
    assert store.entries.change(KEY, Removal())[0] is Outcome.HANDED_OVER
    assert store.entries.change(KEY, Move(When("at", NOW_MS)))[0] is Outcome.HANDED_OVER
    if again:
        assert store.entries.state("a")
    else:
        assert store.entries.departure(KEY).how == "handed_over"
    assert not is_free(store)


# The running task schedules itself.


def test_a_running_task_takes_its_key_along(store, shard_steps, hold):
    schedule(store, "a", **going_on(hold), supersede=True)
    assert say(store, hold) is None, "the run that ends says so; but the key is no longer its"

    assert not is_free(store)
    store.reschedule("a", When("at", NOW_MS))
    shard_steps.hand_over()
    assert header(store)["delivery"] != hold["delivery"]
    assert say(store, hold) == END_MS
    assert say(store, header(store)) is None
    store.check()


def test_a_running_task_that_lost_its_key_goes_on_without_it(store, shard_steps, hold):
    store.set_ms(END_MS)
    schedule(store, "b")

    schedule(store, "a", **going_on(hold))

    assert row(store) == b"b"
    store.check()
    store.reschedule("a", When("at", NOW_MS))
    shard_steps.hand_over()
    assert header(store) is None
    assert row(store) == b"b"


def test_a_second_copy_that_goes_on_leaves_the_key_to_a_later_run_of_its_id(
    store, shard_steps, hold
):
    say(store, hold)
    deliver(store, shard_steps)
    second = ends(store)

    schedule(store, "a", **going_on(hold), supersede=True)

    assert ends(store) == second
    assert store.record("a") is not None
    store.check()


def test_the_cancel_of_a_task_that_goes_on_frees_its_key(store, hold):
    schedule(store, "a", **going_on(hold))
    assert store.entries.change("a", Removal())[0] is Outcome.DONE
    assert is_free(store)


# Other ways out, and the relay.


@pytest.mark.parametrize("extras", [FINISHED, WINDOW])
def test_a_cancel_frees_a_key_that_holds_on(store, extras):
    schedule(store, "a", extras=extras)
    store.entries.change("a", Removal())
    assert not store.raw.exists(store.keys["holders"], store.keys["held"])
    store.set_ms(NOW_MS + 1)
    assert is_free(store)


@pytest.mark.parametrize(("extras", "free"), [(FINISHED, True), (WINDOW, False)])
def test_a_skipped_task_has_ended_but_its_window_goes_on(store, shard_steps, extras, free):
    schedule(store, "a", NOW_MS - 5, Extras("k", grace_ms=1, hold=extras.hold))
    assert shard_steps.hand_over().skipped
    assert is_free(store) is free
    store.check()


@pytest.mark.parametrize("extras", [FINISHED, WINDOW, Extras("l"), Extras()])
def test_a_successor_waits_until_the_run_ends_whatever_the_scanner_learns(
    store, shard_steps, claimed, extras
):
    [entry] = claimed
    receipt = answer(store, "replace", extras, task_id="a", supersede=True)
    assert receipt.task_id == "a"
    store.check()
    shard_steps.ack(claimed)
    assert ends(store) == END_MS
    assert not is_free(store)
    assert store.entries.find("a").facts.behind == ("a" if extras.key == "k" else "")

    say(store, entry.hold)
    store.check()
    assert store.entries.find("a").facts.behind == ""
    assert is_free(store) is (extras.key != "k")


def scheduled(store, conflict, task_id="new", *, supersede=False):
    assert answer(store, conflict, task_id=task_id, supersede=supersede).task_id == task_id


STEPS = {
    "ended": lambda it: say(it.store, it.claims[0].hold),
    "acknowledged": lambda it: it.steps.ack(it.claims),
    "unsent": lambda it: it.steps.nack("unsent", it.claims),
    "may run": lambda it: it.steps.nack("unknown", it.claims),
    "dead": lambda it: it.steps.nack("dead", it.claims, reason="no"),
    "dead, may run": lambda it: it.steps.nack("dead", it.claims, reason="no", uncertain=True),
    "six seconds": lambda it: it.store.set_ms(NOW_MS + 6 * SECOND),
    "reclaimed": lambda it: it.steps.reclaim(),
    "published again": lambda it: it.steps.ack(it.steps.claim(1).entries),
    "its retry": lambda it: schedule(it.store, "a", **going_on(it.claims[0].hold), supersede=True),
    "its successor": lambda it: scheduled(it.store, "replace", "a", supersede=True),
    "its id": lambda it: scheduled(it.store, "", "a", supersede=True),
    "another": lambda it: scheduled(it.store, ""),
    "a replacement": lambda it: scheduled(it.store, "replace"),
}
# `a` is being published. "= " is followed by the task that has the key, and until when, in seconds.
PUBLISHED = {
    "the ack holds it": ["six seconds", "acknowledged", "= a 66", "ended", "= nobody"],
    "an end before the ack frees it": ["ended", "another", "acknowledged", "= new"],
    "its retry has it after the ack": ["its retry", "acknowledged", "= a"],
    "its successor has it, as another copy ended": [
        *("ended", "its successor", "= a", "ended", "acknowledged", "= a"),
    ],
    "an end does not free what waits again": ["six seconds", "reclaimed", "ended", "held"],
    "it may run already": ["may run", "held", "published again", "= a 60"],
    "it certainly does not run": ["unsent", "a replacement", "= new"],
    "a dead one gives way": ["dead", "another", "= new"],
    "a dead one that may run gives way": ["dead, may run", "another", "= new"],
    "a dead one that may run gives way to its id": ["dead, may run", "its id", "= a"],
}


@pytest.mark.parametrize("steps", PUBLISHED.values(), ids=PUBLISHED)
def test_the_key_of_a_task_being_published_goes_the_way_of_its_publishing_and_its_run(
    store, shard_steps, claimed, steps
):
    it = SimpleNamespace(store=store, steps=shard_steps, claims=claimed)
    for step in steps:
        if step == "held":
            assert type(answer(store, "")) is KeyHeld
        elif step.startswith("= "):
            task_id = (row(store) or b"nobody").partition(b"\xff")[0].decode()
            end = ends(store)
            until = f" {(end - NOW_MS) // SECOND}" if end else ""
            assert f"= {task_id}{until}" == step
        else:
            STEPS[step](it)
        store.check()


@pytest.mark.parametrize(
    ("back", "extras"),
    [
        ("retry", FINISHED),
        ("retry", Extras("k")),
        ("retry", Extras("k", ("tag",), 5)),
        ("reclaim", Extras("k")),  # with FINISHED the other one would wait behind it
        ("reclaim", Extras("k", ("tag",), 5)),
    ],
)
def test_a_task_that_comes_back_has_no_key_if_another_one_holds_it(
    store, shard_steps, extras, back
):
    store.at("dead" if back == "retry" else "leased", by=shard_steps, extras=extras)
    hold = deliver(store, shard_steps, "b")
    if back == "retry":
        store.reschedule("a", When("at", FAR_MS), mode="retry")
    else:
        store.set_ms(NOW_MS + 6 * SECOND)
        shard_steps.reclaim()
    assert store.entries.find("a").extras == replace(extras, key="", hold="")
    assert ends(store) == END_MS
    store.check()

    say(store, hold)
    store.check()
    assert is_free(store)
    store.check()


# Windows.


def test_a_window_counts_from_scheduling(store, shard_steps):
    schedule(store, "a", NOW_MS + 10 * SECOND, WINDOW)
    store.set_ms(NOW_MS + 10 * SECOND)
    shard_steps.hand_over()
    assert ends(store) == END_MS

    store.set_ms(END_MS - 1)
    assert not is_free(store, extras=WINDOW)
    store.set_ms(END_MS)
    assert is_free(store, extras=WINDOW)


def test_a_task_that_waits_longer_than_its_window_holds_its_key_until_it_leaves(store, shard_steps):
    schedule(store, "a", END_MS + 5, WINDOW)
    store.set_ms(END_MS + 4)
    assert not is_free(store)
    store.set_ms(END_MS + 5)
    shard_steps.hand_over()
    assert is_free(store)


@pytest.mark.parametrize("conflict", ["replace", "latest", "debounce"])
@pytest.mark.parametrize("task_id", ["a", "b"])
def test_a_replacement_keeps_the_end_of_the_first_window(store, shard_steps, conflict, task_id):
    schedule(store, "a", NOW_MS + 1, WINDOW)
    store.set_ms(NOW_MS + 30 * SECOND)
    schedule(store, task_id, NOW_MS + 30 * SECOND, WINDOW, conflict=conflict)
    shard_steps.hand_over()
    assert ends(store) == END_MS
    store.check()


# A unique key that an entry holds after it has left can be freed; no other key is.


NOTHING = (Outcome.NOT_FOUND, "")


def free(store, seen=""):
    """Free the key; an outcome other than ``DONE`` must change nothing."""
    before = store.contents()
    outcome, who = store.entries.free("k", seen)
    store.check()
    assert outcome or store.contents() == before
    return outcome, who


def test_a_freed_key_is_free_at_once(store, hold):
    assert free(store) == (Outcome.DONE, "a")
    assert store.entries.holder("k") is None
    assert is_free(store)
    assert free(store, hold["delivery"]) == (Outcome.UNCHANGED, "")


@pytest.mark.usefixtures("hold")
def test_the_one_behind_a_freed_key_comes_forward_and_is_delivered(store, shard_steps):
    schedule(store, "b", NOW_MS - 9, conflict="replace")
    assert shard_steps.hand_over().handed_over == 0

    assert free(store) == (Outcome.DONE, "a")

    assert store.entries.holder("k") == KeyHolder("k", "b", "waits")
    assert shard_steps.hand_over().handed_over == 1
    assert store.entries.holder("k").id == "b"


def test_only_the_delivery_that_its_caller_saw_loses_it(store, shard_steps, hold):
    say(store, hold)
    store.set_ms(NOW_MS + 1)
    deliver(store, shard_steps)
    assert free(store, hold["delivery"]) == (Outcome.UNCHANGED, "")
    assert not is_free(store)


def test_a_late_request_does_not_free_it_from_a_later_delivery(store, shard_steps, hold):
    say(store, hold)
    us = NOW_MS * 1000
    request = {"operation": b"0" * 12, "store": store.shard.calls.store, "issued": us, "began": us}
    store.set_ms(NOW_MS + 1)
    deliver(store, shard_steps)

    end = us + 1_000_000
    told = store.scripts.call("free", **request, deadline=end, **arguments("free", key="k"))

    assert told[1] == b"stale"
    assert ends(store)


@pytest.mark.parametrize("ended", [False, True])
def test_of_a_key_that_nothing_holds_nothing_is_written(store, shard_steps, ended):
    if ended:
        deliver(store, shard_steps)
        store.set_ms(END_MS)
    assert free(store) == NOTHING
    assert store.entries.holder("k") is None


WAITING = {
    "holds on": lambda store, _: schedule(store, "a"),
    "holds while it waits": lambda store, _: schedule(store, "a", extras=Extras("k")),
    "a run that goes on": lambda store, steps: schedule(
        store, "a", **going_on(deliver(store, steps)), supersede=True
    ),
}


@pytest.mark.parametrize("put", WAITING.values(), ids=WAITING)
def test_a_waiting_entry_keeps_its_key(store, shard_steps, put):
    put(store, shard_steps)
    assert free(store) == (Outcome.UNCHANGED, "")
    assert store.entries.holder("k") == KeyHolder("k", "a", "waits")


def test_an_entry_being_published_keeps_its_key_and_a_dead_one_has_none(
    store, shard_steps, claimed
):
    assert free(store) == (Outcome.IN_FLIGHT, "")
    assert store.entries.holder("k") == KeyHolder("k", "a", "in_flight")
    shard_steps.nack("dead", claimed, reason="no")
    assert free(store) == NOTHING
    assert store.entries.holder("k") is None


def test_the_holder_is_returned_with_its_times_and_the_source_of_the_end(store, shard_steps):
    schedule(store, "a", NOW_MS)
    store.set_ms(NOW_MS + 5)
    shard_steps.hand_over()
    told = store.entries.holder("k")
    times = {"delivered": from_ms(NOW_MS + 5), "changed": from_ms(NOW_MS)}
    held = KeyHolder(
        "k", "a", "left", from_ms(END_MS + 5), **times, said_by="delivery", until_finished=True
    )
    assert told == replace(held, delivery=told.delivery)

    store.set_ms(NOW_MS + 9)
    say(store, {"id": "a", "key": "k", "delivery": told.delivery}, END_MS - NOW_MS)
    said = replace(told, until=from_ms(END_MS + 9), said_by="worker")
    assert store.entries.holder("k") == said

    store.raw.delete(store.keys["tombstones"])
    assert store.entries.holder("k") == replace(
        said, delivered=None, said_by="", until_finished=False
    )


# The list of such keys.


def hold_all(store, shard_steps, *keys, ms=60_000):
    for key in keys:
        schedule(store, f"of {key}", NOW_MS, Extras(key, hold=f"f{ms}"))
    assert shard_steps.hand_over().handed_over == len(keys)


def parts(store, begins="", *, count=3, most=2, between=lambda: None):
    """The keys of each part of the list."""
    found, last = [], None
    for _ in range(100):
        some, last = held_keys(store.shard, begins, last, count, most)
        found.append([each.key for each in some])
        if last is None:
            return found
        between()
    pytest.fail("the list has no end")


def test_the_holder_is_told_with_the_one_behind_it_and_when_that_is_due(store, hold):
    assert store.entries.holder("k").behind == ""
    schedule(store, "b", FAR_MS, conflict="replace")
    holder = store.entries.holder("k")
    assert (holder.behind, holder.behind_due) == ("b", from_ms(FAR_MS))
    assert [*held_keys(store.shard, "", None, 10, 10).found] == [holder]


@pytest.mark.parametrize("count", [1, 2, 3, 100])
def test_held_keys_are_listed_once_each_those_first_that_are_free_first(store, shard_steps, count):
    later, sooner = [f"b{number}" for number in range(5)], [f"a{number}" for number in range(4)]
    hold_all(store, shard_steps, *later, ms=90_000)
    hold_all(store, shard_steps, *sooner)
    schedule(store, "waits", extras=Extras("waits"))

    found = parts(store, count=count)

    assert [*itertools.chain(*found)] == [*sooner, *later]
    assert max(map(len, found)) <= min(count, 2)


def test_held_keys_are_picked_by_their_beginning(store, shard_steps):
    hold_all(store, shard_steps, "cart:1", "cart", "other", "cart:2", "\u00e9t\u00e9")
    assert [*itertools.chain(*parts(store, "cart:", count=1))] == ["cart:1", "cart:2"]
    assert [*itertools.chain(*parts(store, "\u00e9"))] == ["\u00e9t\u00e9"]
    assert parts(store, "none") == [[], []]


def test_no_key_is_left_out_if_the_last_one_of_a_part_becomes_free(store, shard_steps):
    keys = [f"a{number}" for number in range(6)]
    hold_all(store, shard_steps, *keys)

    def free_the_last_one():
        if store.entries.holder("a1"):
            store.entries.free("a1")

    found = [*itertools.chain(*parts(store, between=free_the_last_one))]
    assert {*keys} == {*found}
