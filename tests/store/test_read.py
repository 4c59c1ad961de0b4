"""Reading one entry, and the counts; `test_listing.py` has the lists."""

import pytest

from celery_delayq.core.store import Listing, State
from celery_delayq.core.store.changes import Removal
from tests.store.support import FAR_MS, NOW_MS

pytestmark = pytest.mark.core


def test_an_entry_that_is_not_scheduled_is_none(store):
    store.schedule("gone")
    store.steps().hand_over()
    assert store.entries.find("gone") is store.entries.find("never") is None
    assert store.entries.state("gone") is store.entries.state("never") is None


def test_the_time_of_a_hand_over_is_known_for_a_while(store):
    store.schedule("a")
    store.schedule("cancelled", FAR_MS)
    store.set_ms(NOW_MS + 5)
    assert store.entries.handed_over_ms("a") is None
    store.steps().hand_over()
    store.entries.change("cancelled", Removal())
    assert store.entries.handed_over_ms("a") == NOW_MS + 5
    assert store.entries.handed_over_ms("cancelled") is store.entries.handed_over_ms("b") is None


STATES = dict.fromkeys(("due", "relay", "refused"), State.SCHEDULED)
STATES |= {"parked": State.PAUSED, "leased": State.IN_FLIGHT, "dead": State.DEAD}


@pytest.mark.parametrize("place", STATES)
def test_the_place_of_an_entry_is_its_state(store, place):
    store.at(place)
    assert store.entries.state("a") is store.entries.find("a").state is STATES[place]


@pytest.mark.parametrize("share", [False, True])
def test_reading_changes_nothing(store, share):
    store.schedule("a", FAR_MS, share=share)
    store.schedule_relayed("b", FAR_MS, share=share)
    before = store.snapshot()
    store.entries.find("a"), store.entries.state("b"), store.entries.counts()
    list(store.entries.waiting(Listing(0, FAR_MS + 1)))
    assert store.snapshot() == before


def test_a_due_time_of_zero_is_listed_and_counted(store):
    store.schedule("a", 0)
    assert [entry.task_id for entry in store.entries.waiting(Listing(0, 1))] == ["a"]
    counts = store.entries.counts()
    assert (counts.next_due_ms, counts.oldest_overdue_ms) == (0, 0)


def test_counts_by_state_are_exact(store):
    for step in range(3):
        store.schedule(f"list{step}", FAR_MS + step)
    for step in range(4):
        store.schedule_relayed(f"relay{step}", NOW_MS + step)
    store.set_ms(NOW_MS + 2)
    store.take("dead", "relay0")
    store.take("leased", "relay1", "relay2")
    counts = store.entries.counts()
    assert (counts.scheduled, counts.in_flight, counts.dead) == (4, 2, 1)
    assert counts.next_due_ms == NOW_MS + 3
