"""A unique key that an entry holds after it has left can be freed; no other key is."""

import itertools
from dataclasses import replace

import pytest

from celery_delayq.core.clock import from_ms
from celery_delayq.core.store import KeyHolder, Outcome
from celery_delayq.core.store.lookup import held_keys
from celery_delayq.core.store.record import Extras
from tests.store.arguments import arguments
from tests.store.held_keys import (
    END_MS,
    claimed,
    deliver,
    ends,
    going_on,
    hold,
    is_free,
    say,
    schedule,
    shard_steps,
)
from tests.store.support import FAR_MS, NOW_MS

pytestmark = pytest.mark.core

__all__ = ["claimed", "hold", "shard_steps"]

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


def test_the_late_word_of_a_run_that_goes_on_frees_no_other_key(store, shard_steps, hold):
    free(store)
    assert say(store, hold, 5) is None
    assert say(store, hold) is None

    # Not even that of a later delivery of its own id.
    store.set_ms(NOW_MS + 1)
    second = deliver(store, shard_steps)
    end = ends(store)
    assert say(store, hold) == say(store, hold, 10**7) == end
    assert say(store, second) is None


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
