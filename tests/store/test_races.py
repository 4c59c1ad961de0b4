"""Many calls at once: each entry leaves once, and one call wins each conflict over an entry."""

import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from celery_delayq.core.clock import When
from celery_delayq.core.store import Outcome
from celery_delayq.core.store.changes import Removal
from tests.store.support import FAR_MS

pytestmark = pytest.mark.core

SCANNERS = 10
ROUNDS = 60  # chance decides which call wins; the answers have to fit in each round
CHANGES = {
    "cancel": lambda store, task_id: store.entries.change(task_id, Removal())[0],
    "reschedule": lambda store, task_id: store.reschedule(task_id, When("at", FAR_MS))[0],
}


def at_once(*calls) -> list:
    """Run all calls, none before the last is ready; returns their results."""
    gate = threading.Barrier(len(calls))

    def run(call):
        gate.wait(30)
        return call()

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(run, calls))


def drain(shard_steps) -> int:
    moved = 0
    while (seen := shard_steps.hand_over()).handed_over or seen.is_past(seen.due):
        moved += seen.handed_over
    return moved


def test_ten_scanners_at_once_hand_over_each_entry_once(store):
    ids = store.flood(5_000)
    moved = at_once(*(partial(drain, store.steps(batch_size=50)) for _ in range(SCANNERS)))
    assert sum(moved) == len(ids)
    assert sum(count > 0 for count in moved) > 1
    assert store.arrived() == ids
    store.check()


@pytest.mark.parametrize("change", CHANGES)
def test_a_hand_over_and_a_change_at_once_agree_on_who_won(store, change):
    shard_steps = store.steps()
    for number in range(ROUNDS):
        task_id = f"a{number}"
        store.schedule(task_id)
        moved, outcome = at_once(shard_steps.hand_over, partial(CHANGES[change], store, task_id))
        assert outcome is (Outcome.HANDED_OVER if moved.handed_over else Outcome.DONE)
        assert store.arrived() == [task_id] * moved.handed_over
        is_left = change == "reschedule" and not moved.handed_over
        assert (store.entries.find(task_id) is not None) == is_left
        store.raw.delete("celery")


@pytest.mark.parametrize("change", CHANGES)
def test_a_late_ack_and_a_change_at_once_agree_on_who_won(store, change):
    shard_steps = store.steps()
    for number in range(ROUNDS):
        task_id = f"a{number}"
        claimed = store.at("lapsed", task_id, by=shard_steps)
        acked, outcome = at_once(
            partial(shard_steps.ack, claimed), partial(CHANGES[change], store, task_id)
        )
        assert outcome is (Outcome.HANDED_OVER if acked else Outcome.UNCERTAIN)
        assert (store.record(task_id) is None) == (bool(acked) or change == "cancel")
