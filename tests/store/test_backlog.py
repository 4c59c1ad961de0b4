"""A backlog of more than a batch: entries that have just fallen due go beside it, each once."""

import pytest

from tests.store.support import NOW_MS

pytestmark = pytest.mark.core

OLD_MS, FRESH_MS = NOW_MS - 1001, NOW_MS - 1000
LAGGING_MS = NOW_MS - 21
BATCH = 8


@pytest.fixture(params=["schedule", "schedule_relayed"])
def put(request, store):
    return getattr(store, request.param)


@pytest.fixture
def take(store, put):
    """Hand over, or claim, a batch; its ids."""

    def run(shard_steps):
        if put == store.schedule_relayed:
            return [claimed.task_id for claimed in shard_steps.claim(BATCH)[0]]
        before = len(store.arrived())
        shard_steps.hand_over()
        return store.arrived()[before:]

    return run


@pytest.fixture
def batches(store, take):
    """Take batch by batch, until nothing is due; the ids of each."""

    def run():
        shard_steps = store.steps(batch_size=BATCH)
        return list(iter(lambda: take(shard_steps), []))

    return run


def schedule(put, name, count, due_ms, **options):
    ids = [f"{name}{number}" for number in range(count)]
    for task_id in ids:
        put(task_id, due_ms, **options)
    return ids


def test_a_quarter_of_each_batch_is_for_what_fell_due_just_now(store, put, batches):
    old = schedule(put, "old", 18, OLD_MS)
    fresh = schedule(put, "fresh", 3, FRESH_MS)
    assert batches() == [[*fresh[:2], *old[:6]], [*fresh[2:], *old[6:13]], old[13:]]
    store.check()


def test_entries_that_fall_due_during_a_long_step_are_fresh_for_the_next(store, put, take):
    old, new = schedule(put, "old", 24, OLD_MS), schedule(put, "new", 2, NOW_MS + 1)
    shard_steps = store.steps(batch_size=BATCH)
    assert take(shard_steps) == old[:8]
    store.set_ms(NOW_MS + 30_000)
    assert take(shard_steps) == [*new, *old[8:14]]
    store.check()


def test_a_batch_of_several_claims_has_one_time_from_which_on_things_are_fresh(
    store, shard_steps, limits
):
    limits(hand_over_chunk=BATCH)
    put = store.schedule_relayed
    old, new = schedule(put, "old", 32, OLD_MS), schedule(put, "new", 4, NOW_MS + 1)
    shard_steps.claim(BATCH)
    store.set_ms(NOW_MS + 30_000)
    claimed = [one.task_id for one in shard_steps.claim(2 * BATCH).entries]
    assert claimed == [*new[:2], *old[8:14], *new[2:], *old[14:20]]


def test_a_clock_that_was_set_back_between_two_steps_leaves_a_second_fresh(store, put, take):
    old, fresh = schedule(put, "old", 16, OLD_MS), schedule(put, "fresh", 1, FRESH_MS)
    shard_steps = store.steps(batch_size=BATCH)
    store.set_ms(NOW_MS + 60_000)
    assert take(shard_steps) == old[:8]
    store.set_ms(NOW_MS)
    assert take(shard_steps) == [*fresh, *old[8:15]]


def test_a_burst_on_one_millisecond_does_not_hold_up_later_entries(put, batches):
    burst = schedule(put, "a", 15, LAGGING_MS)
    later = schedule(put, "b", 3, LAGGING_MS + 1)
    assert batches() == [[*later[:2], *burst[:6]], [*later[2:], *burst[6:13]], burst[13:]]


def test_a_batch_that_is_hardly_late_goes_in_order(put, batches):
    first = schedule(put, "a", 12, LAGGING_MS + 1)
    second = schedule(put, "b", 3, LAGGING_MS + 2)
    assert batches() == [first[:8], [*first[8:], *second]]


def test_entries_that_fit_one_batch_leave_in_order(put, batches):
    fresh = schedule(put, "b", 3, NOW_MS)
    old = schedule(put, "a", 5, OLD_MS)
    assert batches() == [[*old, *fresh]]


def test_entries_of_one_due_time_keep_their_order_while_they_grow_old(store, put, take):
    ids = schedule(put, "a", 30, NOW_MS)
    taken, shard_steps = [], store.steps(batch_size=BATCH)
    for late in (0, 999, 1000, 1001, 50_000):
        store.set_ms(NOW_MS + late)
        taken += take(shard_steps)
    assert taken == ids


def test_a_batch_that_ends_within_what_is_fresh_loses_nothing(store, put, batches):
    old = schedule(put, "old", 9, OLD_MS)
    fresh = schedule(put, "fresh", 2, NOW_MS, payload="x" * 1_000_001)
    assert batches() == [fresh[:1], fresh[1:], old[:8], old[8:]]
    store.check()
