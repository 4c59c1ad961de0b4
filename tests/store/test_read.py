"""Reading one entry, the counts, and what falls due; `test_listing.py` has the lists."""

import pytest

from celery_delayq.core.store import Listing, State, counts
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


def test_a_due_time_of_zero_is_listed_and_counted(store):
    store.schedule("a", 0)
    assert [entry.task_id for entry in store.entries.waiting(Listing(0, 1))] == ["a"]
    found = store.entries.counts()
    assert (found.next_due_ms, found.oldest_overdue_ms) == (0, 0)


# How many fall due in each of some spans of time.


def told(store, span_ms, spans, **after):
    return counts.falling_due(store.entries.shards, span_ms, spans, **after)


def test_each_entry_is_counted_in_the_span_in_which_it_is_due(store):
    assert told(store, 60_000, 1000) == (NOW_MS, [0] * 1000)
    for number, after in enumerate((-5, 0, 1, 10, 11, 20, 30, 31)):
        put = store.schedule_relayed if number % 2 else store.schedule
        put(f"task-{number}", NOW_MS + after)
    assert told(store, 10, 3) == (NOW_MS, [2, 2, 1])
    assert told(store, 31, 1) == (NOW_MS, [6])


def test_the_spans_can_begin_at_any_time(store):
    for number, after in enumerate((-1001, -1000, -999, 0, 1)):
        store.schedule(f"task-{number}", NOW_MS + after)
    assert told(store, 1000, 2, after_ms=NOW_MS - 1001) == (NOW_MS, [2, 2])
    assert told(store, 1000, 1, after_ms=0) == (NOW_MS, [0])
