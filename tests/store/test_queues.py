"""Waiting entries per queue, counted in due order; and the entry that is overdue longest."""

import itertools

import pytest

from celery_delayq.core.store import label_of
from celery_delayq.core.store.changes import Removal
from celery_delayq.core.store.record import Extras, lane_for
from tests.store.arguments import arguments
from tests.store.support import FAR_MS, NOW_MS

pytestmark = pytest.mark.core

CELERY, MAIL = label_of("celery"), label_of("mail")
UNREADABLE = b""


def told(store, most=10_000):
    """The number of waiting and overdue entries per label; and whether all were counted."""
    tallies, is_complete = store.entries.tallies(most)
    return {one.label: (one.waiting, one.overdue) for one in tallies}, is_complete


def small_steps(limits, size=3, steps=40):
    limits(queues_step=size, queues_steps=steps)


def calls_of(store, name):
    """Record a script's arguments in each call from here on."""
    seen = []
    store.scripts.on_call = lambda script, given: script == name and seen.append(given)
    return seen


def test_the_entries_of_each_queue_are_counted_and_the_overdue_ones_among_them(store):
    store.schedule("a", NOW_MS, queue="mail")
    store.schedule("b", NOW_MS + 1, queue="mail")
    store.schedule("c", NOW_MS - 5)
    store.schedule_relayed("d", NOW_MS)
    store.schedule_relayed("e", FAR_MS)
    assert told(store) == ({MAIL: (2, 1), CELERY: (3, 2)}, True)


def test_an_entry_in_flight_dead_or_parked_does_not_wait(store):
    store.at("dead", "dead")
    store.at("leased", "flying")
    store.at("parked", "parked", queue="mail")
    store.schedule("waits", FAR_MS)
    assert told(store) == ({CELERY: (1, 0)}, True)


def test_a_refused_entry_is_overdue_whenever_it_is_tried_again(store):
    store.at("refused", wait=300)
    store.schedule("b", FAR_MS)
    assert told(store) == ({CELERY: (2, 1)}, True)


@pytest.mark.parametrize("share", [False, True])
@pytest.mark.parametrize("size", [1, 2, 3, 500])
def test_over_all_steps_each_entry_is_counted_once(store, limits, share, size):
    small_steps(limits, size)
    store.raw.hset(store.keys["meta"], "seq", 250)  # the numbers get a carry
    for step in range(20):
        put = store.schedule_relayed if step % 3 == 0 else store.schedule
        put(f"a{step}", FAR_MS + (step * 7) % 5, share=share)
    assert told(store) == ({CELERY: (20, 0)}, True)


@pytest.mark.parametrize(("refused", "is_complete"), [(3, True), (4, False)])
def test_refused_entries_are_counted_once_and_no_more_than_fill_a_step(
    store, limits, refused, is_complete
):
    small_steps(limits)
    store.at("refused", *(f"r{step}" for step in range(refused)))
    for step in range(4):
        store.schedule(f"a{step}", FAR_MS)
    assert told(store) == ({CELERY: (7, 3)}, is_complete)


def test_no_more_is_looked_at_than_may_be_and_the_overdue_ones_come_first(store, limits):
    small_steps(limits, 5)
    for step in range(30):
        store.schedule(f"later{step}", FAR_MS + step)
    for step in range(4):
        store.schedule_relayed(f"late{step}", NOW_MS - step)
    assert told(store, 10) == ({CELERY: (10, 4)}, False)
    assert told(store, 12) == ({CELERY: (12, 4)}, False)
    assert told(store, 34) == ({CELERY: (34, 4)}, True)


def test_no_more_is_looked_at_if_some_are_refused_and_others_wait_behind_a_key(store):
    held = [Extras(key, hold="w60000") for key in "kl"]
    for extras in held:
        store.schedule(extras.key, NOW_MS, extras=extras)
    store.steps().hand_over()
    for extras in held:
        store.schedule(f"{extras.key}2", FAR_MS, extras=extras, conflict="replace")
        assert store.places(f"{extras.key}2") == ["behind"]
    store.at("refused", "r")
    assert told(store, 2) == ({CELERY: (2, 1)}, False)
    assert told(store, 3) == ({CELERY: (3, 1)}, True)


def test_entries_that_come_back_from_a_pause_count_towards_the_limit(store):
    store.entries.pause(lane_for(), "")
    for step in range(3):
        store.schedule(f"late{step}", NOW_MS)
    store.steps().hand_over()
    store.entries.resume(lane_for())
    for step in range(4):
        store.schedule(f"later{step}", FAR_MS)
    assert told(store, 5) == ({CELERY: (5, 3)}, False)
    assert told(store, 7) == ({CELERY: (7, 3)}, True)


def test_a_count_of_queues_ends_where_records_are_large(store, limits):
    limits(queues_step_bytes=5000, queues_steps=3)
    for step in range(20):
        store.schedule(f"a{step}", FAR_MS, payload="x" * 2000)
    calls = calls_of(store, "queues")
    assert told(store) == ({CELERY: (9, 0)}, False)
    assert len(calls) == 3


@pytest.mark.parametrize("payload", ["x" * 100, "x" * 6000], ids=["small", "large"])
def test_a_step_reads_no_more_than_its_bytes_allow(store, payload):
    for step in range(20):
        store.schedule(f"a{step}", FAR_MS, payload=payload)
    size = len(store.record("a0"))
    looked, *_ = store.scripts.call("queues", **arguments("queues", max_bytes=size * 3 - 1))
    assert looked == 3


def test_entries_that_leave_between_two_steps_make_it_skip_no_other(store, limits):
    small_steps(limits)
    for step in range(12):
        store.schedule(f"a{step}", FAR_MS + step)
    steps, gone = itertools.count(), iter([f"a{step}" for step in range(12)])

    def leave(script, _):
        if script == "queues" and next(steps):
            for task_id in (next(gone), next(gone)):
                store.entries.change(task_id, Removal())

    store.scripts.on_call = leave
    # When the second step begins, two of the first three have left; it begins at the fourth.
    assert told(store) == ({CELERY: (12, 0)}, True)


def test_an_unreadable_entry_is_of_no_queue(store):
    for task_id in ("gone", "foreign", "cut", "sound"):
        store.schedule(task_id, NOW_MS)
    store.raw.hdel(store.keys["records"], "gone")
    store.raw.hset(store.keys["records"], "foreign", b"0" + store.record("foreign")[1:])
    store.raw.hset(store.keys["records"], "cut", store.record("cut")[:40])
    assert told(store) == ({UNREADABLE: (3, 3), CELERY: (1, 1)}, True)


def test_neighbours_that_differ_only_behind_their_header_are_told_apart(store):
    for step, queue in enumerate(("mail", "celery", "mail", "celery")):
        store.schedule(f"a{step}", FAR_MS + step, queue=queue, to="one list")
    store.schedule("damaged", FAR_MS + 9, to="one list")
    record = store.record("damaged")
    start = record.index(b"one list") + len("one list") + 6
    spoilt = record[:start] + b"x" * 13 + record[start + 13 :]
    store.raw.hset(store.keys["records"], "damaged", spoilt)
    assert told(store) == ({MAIL: (2, 0), CELERY: (2, 0), UNREADABLE: (1, 0)}, True)


def test_the_tally_of_a_queue_shows_where_one_of_its_entries_goes(store):
    store.schedule("a", FAR_MS, queue="mail", to="the list")
    store.schedule_relayed("b", FAR_MS)
    tallies, _ = store.entries.tallies(10)
    places = {one.label: (one.kind, one.place[:8]) for one in tallies}
    assert places == {MAIL: ("L", "the list"), CELERY: ("R", '{"exchan')}


def test_members_of_somebody_else_s_keep_a_count_of_queues_from_nothing(store, limits):
    small_steps(limits)
    for step in range(10):
        store.schedule(f"a{step}", FAR_MS)
    strangers = ["", "x", b"\0\0\0\0\0", b"\xff" * 6, "another program's"]
    store.raw.zadd(store.keys["due"], dict.fromkeys(strangers, FAR_MS))
    store.raw.zadd(store.keys["due"], {"before": "-inf", "behind": "+inf"})
    counted, is_complete = told(store)
    assert counted[CELERY] == (10, 0)
    assert is_complete


def oldest(store):
    return store.entries.counts().oldest_overdue_ms


def by_state(store):
    counts = store.entries.counts()
    return counts.scheduled, counts.overdue, counts.refused, counts.paused


def test_nothing_is_overdue_one_millisecond_early(store):
    assert oldest(store) is None
    store.schedule("a", NOW_MS + 1)
    store.schedule_relayed("b", NOW_MS + 1)
    store.schedule_relayed("c", NOW_MS + 2)
    assert (by_state(store), oldest(store)) == ((3, 0, 0, 0), None)
    store.set_ms(NOW_MS + 1)
    assert (by_state(store), oldest(store)) == ((3, 2, 0, 0), NOW_MS + 1)


def test_the_oldest_overdue_entry_is_looked_for_wherever_it_waits(store):
    store.schedule("a", NOW_MS - 10)
    assert oldest(store) == NOW_MS - 10
    store.schedule_relayed("b", NOW_MS - 20)
    assert oldest(store) == NOW_MS - 20
    store.schedule_relayed("c", NOW_MS - 30)
    claims = store.take("leased", "c", "b")
    assert oldest(store) == NOW_MS - 10
    store.steps().nack("refused", claims[:1], wait=300)
    assert oldest(store) == NOW_MS - 30


def test_a_due_and_paused_entry_counts_the_same_before_a_scanner_has_met_it(store):
    store.entries.pause(lane_for(queue="mail"), "mail")
    store.schedule("first", NOW_MS - 12, queue="mail")
    store.schedule("next", NOW_MS - 11, queue="celery")
    store.schedule("last", NOW_MS - 10, queue="mail")
    store.schedule("not due", FAR_MS, queue="mail")
    counts = store.entries.counts()
    assert by_state(store) == (2, 1, 0, 2)
    assert (counts.next_due_ms, counts.oldest_overdue_ms) == (NOW_MS - 11, NOW_MS - 11)
    assert told(store)[0] == {CELERY: (1, 1), MAIL: (1, 0)}
    store.entries.change("next", Removal())
    assert store.entries.counts().next_due_ms == FAR_MS
    store.steps().hand_over()
    assert by_state(store) == (1, 0, 0, 2)


@pytest.mark.parametrize("bound", ["overdue_seen", "overdue_bytes"])
def test_a_paused_entry_behind_as_many_as_are_looked_at_counts_as_overdue(store, limits, bound):
    store.entries.pause(lane_for(queue="mail"), "mail")
    for step in range(4):
        store.schedule(f"a{step}", NOW_MS - 10 + step, queue="mail")
    size = len(store.record("a0"))
    limits(**{bound: 3 if bound == "overdue_seen" else size * 3 - 1})
    assert by_state(store) == (1, 1, 0, 3)
    assert store.entries.counts().next_due_ms == oldest(store) == NOW_MS - 7
    store.entries.change("a3", Removal())
    assert oldest(store) is None


@pytest.mark.parametrize(("looked_at", "age"), [(3, 20), (2, 10)])
def test_a_refused_entry_is_as_old_as_its_due_time_if_it_is_among_those_tried_next(
    store, limits, looked_at, age
):
    for step, wait in enumerate((10, 50, 200)):
        store.at("refused", f"a{step}", due_ms=NOW_MS - 10 * step, wait=wait)
    limits(overdue_seen=looked_at)
    assert oldest(store) == NOW_MS - age


@pytest.mark.parametrize("paused", [49, 50, 51, 120, 299])
def test_over_all_slices_what_is_paused_is_passed(store, paused):
    store.entries.pause(lane_for(queue="mail"), "mail")
    for step in range(paused):
        store.schedule(f"a{step}", NOW_MS - 500 + step, queue="mail")
    assert oldest(store) is None
    store.schedule("b", NOW_MS - 3)
    assert oldest(store) == NOW_MS - 3


def test_an_unreadable_entry_is_overdue_as_well(store):
    store.schedule("a", NOW_MS - 10)
    store.raw.hset(store.keys["records"], "a", "spoilt")
    assert oldest(store) == NOW_MS - 10
    store.entries.pause(lane_for(), "")
    assert oldest(store) == NOW_MS - 10
