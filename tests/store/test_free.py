"""A unique key that an entry holds after it has left can be freed; no other key is."""

from dataclasses import replace

import pytest

from celery_delayq.core.clock import from_ms
from celery_delayq.core.store import KeyHolder, Outcome
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
from tests.store.support import NOW_MS

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


def test_it_is_free_at_once(store, hold):
    assert free(store) == (Outcome.DONE, "a")
    assert store.entries.holder("k") is None
    assert is_free(store)
    assert free(store, hold["delivery"]) == (Outcome.UNCHANGED, "")


@pytest.mark.usefixtures("hold")
def test_the_one_behind_comes_forward_and_is_delivered(store, shard_steps):
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
