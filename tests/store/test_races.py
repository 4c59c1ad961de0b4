"""Many calls at once: each entry leaves once, and one call wins each conflict over an entry."""

import itertools
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

import pytest

from celery_delayq.core.clock import When
from celery_delayq.core.store import Outcome
from celery_delayq.core.store.changes import Removal
from celery_delayq.errors import AlreadyScheduled
from tests.store.support import FAR_MS, NOW_MS

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


def relay(shard_steps) -> list[str]:
    acked = []
    while claimed := shard_steps.claim(7)[0]:
        assert shard_steps.ack(claimed) == len(claimed)
        acked += [entry.task_id for entry in claimed]
    return acked


def test_ten_scanners_at_once_hand_over_each_entry_once(store):
    ids = store.flood(5_000)
    moved = at_once(*(partial(drain, store.steps(batch_size=50)) for _ in range(SCANNERS)))
    assert sum(moved) == len(ids)
    assert sum(count > 0 for count in moved) > 1
    assert store.arrived() == ids
    store.check()


def test_ten_scanners_at_once_relay_each_entry_once(store):
    ids = [f"a{step}" for step in range(300)]
    for task_id in ids:
        store.schedule_relayed(task_id, share=True)
    acked = at_once(*(partial(relay, store.steps()) for _ in range(SCANNERS)))
    assert sorted(itertools.chain(*acked)) == sorted(ids)
    assert store.raw.exists(*(store.keys[name] for name in ("relay", "leased", "records"))) == 0


def test_scheduling_while_scanners_drain_loses_nothing(store):
    steps_by_shard = [store.steps(batch_size=5) for _ in range(3)]
    done = threading.Event()

    def scan(shard_steps):
        while not done.is_set() or shard_steps.hand_over().due is not None:
            shard_steps.hand_over()

    def write(number):
        for step in range(100):
            store.schedule(f"{number}-{step}", NOW_MS - step % 7, share=True)

    with ThreadPoolExecutor(6) as pool:
        scans = [pool.submit(scan, shard_steps) for shard_steps in steps_by_shard]
        list(pool.map(write, range(3)))
        done.set()
        for each in scans:
            each.result(30)
    arrived = store.arrived()
    assert sorted(arrived) == sorted(f"{a}-{b}" for a in range(3) for b in range(100))
    store.check()


def test_of_many_that_schedule_one_id_one_wins_and_the_others_are_told(store):
    def schedule(due_ms):
        with suppress(AlreadyScheduled):
            return store.schedule("a", due_ms)

    for _ in range(ROUNDS):
        store.raw.flushdb()
        store.set_ms(NOW_MS)
        answers = at_once(*(partial(schedule, FAR_MS + step) for step in range(4)))
        (winner,) = [answer for answer in answers if answer]
        assert store.entries.find("a").due_ms == winner
        store.check()


def test_of_many_that_cancel_one_entry_one_is_told_that_it_was_done(store):
    for number in range(ROUNDS):
        store.schedule(f"a{number}", FAR_MS)
        answers = at_once(*[partial(CHANGES["cancel"], store, f"a{number}")] * 4)
        assert sorted(answer.name for answer in answers) == ["DONE", *["NOT_FOUND"] * 3]


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


def test_cancel_and_reschedule_at_once_agree_on_who_came_first(store):
    for number in range(ROUNDS):
        task_id = f"a{number}"
        store.schedule(task_id, FAR_MS)
        cancelled, moved = at_once(*(partial(one, store, task_id) for one in CHANGES.values()))
        assert cancelled is Outcome.DONE
        assert moved in (Outcome.DONE, Outcome.NOT_FOUND)
        assert store.entries.find(task_id) is None


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
