"""Ack and release; a token that is not the claim's has no effect."""

import json
from dataclasses import replace

import pytest

from celery_delayq.core.clock import When
from celery_delayq.core.store import Outcome, State
from tests.store.support import FAR_MS, NOW_MS, tally

LEASE_MS = 30_000
VERDICTS = ["unsent", "unknown", "refused", "dead"]


@pytest.fixture
def claimed_by_other(store):
    """An entry that a second scanner claimed after the first lease ran out, and the first token."""
    first, second = store.steps(), store.steps()
    store.schedule_relayed("a", share=True)
    claimed, *_ = first.claim(1)
    store.set_ms(NOW_MS + LEASE_MS)
    assert first.reclaim() == ["a"]
    assert len(second.claim(1)[0]) == 1
    return first, claimed


def test_an_ack_leaves_nothing_but_the_trace(store):
    store.schedule_relayed("a", share=True)
    shard_steps = store.steps()
    claimed, *_ = shard_steps.claim(1)
    assert shard_steps.ack(claimed) == 1
    names = ("relay", "leased", "records", "templates", "template_uses", "claims")
    assert [name for name in names if store.raw.exists(store.keys[name])] == []
    assert store.entries.cancel("a")[0] is Outcome.HANDED_OVER


def test_a_second_ack_does_nothing(store):
    store.schedule_relayed("a")
    shard_steps = store.steps()
    claimed, *_ = shard_steps.claim(1)
    shard_steps.ack(claimed)
    before = store.snapshot()
    assert shard_steps.ack(claimed) == 0
    assert store.snapshot() == before


def test_the_tombstones_of_what_was_relayed_are_bounded(store):
    for task_id in ("a", "b", "c"):
        store.schedule_relayed(task_id)
    shard_steps = store.steps()
    claimed, *_ = shard_steps.claim(3)
    store.raw.hset(store.keys["tombstones"], mapping={f"h{step}": "h" for step in range(9_998)})
    for one, kept in zip(claimed, ([9_999, 0], [0, 10_000], [1, 10_000]), strict=True):
        shard_steps.ack([one])
        assert [
            store.raw.hlen(store.keys[name]) for name in ("tombstones", "tombstones_old")
        ] == kept


def test_the_end_of_a_token_is_not_the_token(store):
    store.schedule_relayed("a")
    claimed, *_ = store.steps().claim(1)
    shorter = [replace(claimed[0], token=claimed[0].token[1:])]
    assert store.steps().ack(shorter) == store.steps().nack("unsent", shorter) == 0
    assert store.entries.state("a") is State.IN_FLIGHT


def test_nothing_to_ack_or_release_asks_redis_nothing(start_redis, store_on):
    server = start_redis()
    shard_steps = store_on(server).steps()
    server.kill()
    assert shard_steps.ack([]) == 0
    assert shard_steps.nack("unsent", []) == 0


@pytest.mark.parametrize("step", ["ack", *VERDICTS])
def test_a_late_step_with_an_old_token_does_nothing(store, claimed_by_other, step):
    shard_steps, claimed = claimed_by_other
    before = store.snapshot()
    late = shard_steps.ack(claimed) if step == "ack" else shard_steps.nack(step, claimed)
    assert late == 0
    assert store.snapshot() == before


@pytest.mark.parametrize("step", ["ack", *VERDICTS])
@pytest.mark.parametrize("meanwhile", ["reclaimed", "cancelled", "rescheduled", "scheduled anew"])
def test_a_late_step_does_nothing_to_what_became_of_the_entry(store, step, meanwhile):
    shard_steps = store.steps()
    store.schedule_relayed("a")
    claimed, *_ = shard_steps.claim(1)
    store.lease_out()
    if meanwhile == "reclaimed":
        shard_steps.reclaim()
    elif meanwhile == "rescheduled":
        store.reschedule("a", When("at", FAR_MS))
    else:
        store.entries.cancel("a")
    if meanwhile == "scheduled anew":
        store.schedule_relayed("a", FAR_MS)
    before = store.snapshot()
    late = shard_steps.ack(claimed) if step == "ack" else shard_steps.nack(step, claimed)
    assert late == 0
    assert store.snapshot() == before


@pytest.mark.parametrize("step", ["ack", *VERDICTS])
def test_a_step_after_the_lease_ran_out_still_counts_while_nobody_took_the_entry(store, step):
    shard_steps = store.steps()
    store.schedule_relayed("a")
    claimed, *_ = shard_steps.claim(1)
    store.set_ms(NOW_MS + 2 * LEASE_MS)
    done = shard_steps.ack(claimed) if step == "ack" else shard_steps.nack(step, claimed)
    assert done == 1
    store.check()


def test_an_entry_that_was_not_sent_goes_back_as_it_was(store):
    store.schedule_relayed("a", NOW_MS - 5)
    before = store.snapshot()
    shard_steps = store.steps()
    claimed, *_ = shard_steps.claim(1)
    assert shard_steps.nack("unsent", claimed) == 1
    assert store.snapshot() == before


def test_an_unknown_outcome_goes_back_at_once_and_every_later_attempt_says_so(store):
    store.schedule_relayed("a", NOW_MS - 5)
    shard_steps = store.steps()
    for verdict in ("unknown", "unsent", "refused"):
        claimed, *_ = shard_steps.claim(1)
        assert bool(claimed[0].uncertain) is (verdict != "unknown")
        shard_steps.nack(verdict, claimed)
        shard_steps.hand_over()
    assert shard_steps.claim(1)[0][0].uncertain
    assert store.entries.find("a").due_ms == NOW_MS - 5


def test_a_refusal_is_counted_and_waits_and_the_due_time_stays(store):
    store.schedule_relayed("a", NOW_MS - 5)
    shard_steps = store.steps()
    claimed, *_ = shard_steps.claim(1)
    shard_steps.nack("refused", claimed, wait=1.5)
    assert store.score("refused", "a") == NOW_MS + 1500
    entry = store.entries.find("a")
    assert (entry.due_ms, entry.state) == (NOW_MS - 5, State.SCHEDULED)
    store.set_ms(NOW_MS + 1499)
    assert shard_steps.hand_over().back == NOW_MS + 1500
    assert shard_steps.claim(1)[0] == []
    store.set_ms(NOW_MS + 1500)
    assert shard_steps.hand_over().back is None
    assert store.score("relay", "a") == NOW_MS - 5
    store.check()
    (again,), *_ = shard_steps.claim(1)
    assert tally(again) == (1, 1, False)
    assert json.loads(again.message)["headers"]["delayq_due"] == NOW_MS - 5


def test_attempts_and_refusals_are_counted_and_what_was_not_sent_is_neither(store):
    store.schedule_relayed("a")
    shard_steps, tallies = store.steps(), []
    for verdict in ("refused", "unsent", "unknown", "refused", "dead"):
        claimed, *_ = shard_steps.claim(1)
        tallies.append(tally(*claimed))
        shard_steps.nack(verdict, claimed, wait=0)
        shard_steps.hand_over()
    assert tallies == [(0, 0, False), (1, 1, False), (1, 1, False), (2, 1, True), (3, 2, True)]


def test_the_last_refusal_sets_aside_with_the_reason(store):
    store.schedule_relayed("a", NOW_MS - 5, share=True)
    shard_steps = store.steps()
    claimed, *_ = shard_steps.claim(1)
    assert shard_steps.nack("dead", claimed, reason="é: NO_ROUTE") == 1
    entry = store.entries.find("a")
    assert (entry.state, entry.reason, entry.due_ms) == (State.DEAD, "é: NO_ROUTE", NOW_MS - 5)
    assert store.places("a") == ["dead"]
    assert shard_steps.claim(1)[0] == []
    store.check()


def test_a_step_touches_only_the_entries_it_names(store):
    for task_id in "abc":
        store.schedule_relayed(task_id)
    shard_steps = store.steps()
    (a, b, c), *_ = shard_steps.claim(3)
    assert shard_steps.ack([b]) == 1
    assert shard_steps.nack("unsent", [a, b]) == 1
    assert (store.places("a"), store.places("b"), store.places("c")) == (["relay"], [], ["leased"])
    assert shard_steps.ack([c]) == 1
