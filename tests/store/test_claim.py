"""Claim: due entries, in order, each with a lease and its own token."""

import json
from itertools import groupby

import pytest

from celery_delayq.core.clock import from_ms
from celery_delayq.core.store import scanner_steps
from celery_delayq.core.store.scripts import Scripts
from celery_delayq.errors import StoreUnavailable
from tests.store.support import NOW_MS, ROUTE, tally

pytestmark = pytest.mark.core

LEASE_MS = 30_000


@pytest.mark.parametrize("share", [False, True])
def test_a_claim_brings_all_that_publishing_takes(store, share):
    store.schedule_relayed("a", NOW_MS - 5, payload="x", share=share)
    (entry,), aside, *_ = store.steps().claim(1)
    assert aside == []
    assert (entry.task_id, entry.destination) == ("a", ROUTE)
    assert tally(entry) == (0, 0, False)
    message = json.loads(entry.message)
    assert (message["body"], message["headers"]["delayq_due"]) == ("x", NOW_MS - 5)
    assert store.score("leased", "a") == NOW_MS + LEASE_MS
    store.check()


def test_an_entry_is_not_claimed_one_microsecond_early(store):
    store.schedule_relayed("a", NOW_MS)
    store.set_us(NOW_MS * 1000 - 1)
    assert store.steps().claim(1)[0] == []
    store.set_us(NOW_MS * 1000)
    assert len(store.steps().claim(1)[0]) == 1


def test_a_claimed_entry_counts_seconds_by_redis_clock(store):
    store.schedule_relayed("a", NOW_MS)
    store.set_ms(NOW_MS + 86_400_000)
    (entry,), *_ = store.steps().claim(1)
    assert entry.seconds_until(from_ms(NOW_MS + 86_460_000)) == pytest.approx(60, abs=5)


def test_claims_follow_due_time_and_equal_times_insertion(store):
    for task_id, due_ms in (("c", 3), ("b1", 2), ("b2", 2), ("a", 1)):
        store.schedule_relayed(task_id, due_ms)
    claimed, *_ = store.steps().claim(3)
    assert [entry.task_id for entry in claimed] == ["a", "b1", "b2"]
    assert store.places("c") == ["relay"]


def test_two_scanners_never_claim_the_same_entry(store):
    for step in range(10):
        store.schedule_relayed(f"a{step}")
    first, *_ = store.steps().claim(6)
    second, *_ = store.steps().claim(6)
    assert [entry.task_id for entry in first + second] == [f"a{step}" for step in range(10)]


def test_entries_for_lists_are_not_claimed_and_those_for_the_relay_not_moved(store):
    store.schedule("list")
    store.schedule_relayed("relay")
    shard_steps = store.steps()
    assert [entry.task_id for entry in shard_steps.claim(10)[0]] == ["relay"]
    assert shard_steps.hand_over().handed_over == 1
    assert store.arrived() == ["list"]


def test_a_claim_ends_after_a_megabyte_and_takes_a_larger_entry_alone(store):
    for step in range(5):
        store.schedule_relayed(f"a{step}", payload="x" * 300_000)
    store.schedule_relayed("large", payload="x" * 1_100_000)
    store.schedule_relayed("small")
    shard_steps = store.steps()
    assert [len(shard_steps.claim(100)[0]) for _ in range(4)] == [4, 2, 1, 0]


def test_no_token_is_used_twice(store):
    for step in range(20):
        store.schedule_relayed(f"a{step}")
    steps_by_shard = [store.steps(), store.steps()]
    tokens = [shard_steps.claim(1)[0][0].token for shard_steps in steps_by_shard for _ in range(10)]
    assert len(set(tokens)) == 20


def test_an_ack_that_comes_late_takes_nothing_of_a_claim_that_arrives_twice(store, monkeypatch):
    asked = []
    call = Scripts.call
    monkeypatch.setattr(
        Scripts, "call", lambda *args, **options: asked.append(options) or call(*args, **options)
    )
    store.schedule_relayed("a")
    shard_steps = store.steps()
    claimed, *_ = shard_steps.claim(1)
    request = asked[-1]
    assert shard_steps.ack(claimed) == 1
    store.schedule_relayed("a")
    store.set_us(NOW_MS * 1000 + 1)
    store.scripts.call("claim", **request)
    assert store.places("a") == ["leased"]
    assert shard_steps.ack(claimed) == 0
    assert store.places("a") == ["leased"]


def test_a_claim_of_many_is_made_in_chunks_that_redis_does_in_a_few_milliseconds(
    store, monkeypatch
):
    monkeypatch.setattr(scanner_steps, "CHUNK", 10)
    for step in range(35):
        store.schedule_relayed(f"a{step}")
    shard_steps = store.steps()
    claimed, *_ = shard_steps.claim(25)
    assert [entry.task_id for entry in claimed] == [f"a{step}" for step in range(25)]
    assert [sum(1 for _ in group) for _, group in groupby(entry.token for entry in claimed)] == [
        10,
        10,
        5,
    ]
    assert shard_steps.ack(claimed[:13]) == 13
    assert shard_steps.nack("unsent", claimed[13:]) == 12
    assert store.raw.zcard(store.keys["relay"]) == 22
    assert len(shard_steps.claim(100)[0]) == 22


def test_a_claim_that_is_cut_short_by_an_outage_keeps_what_it_has(store, monkeypatch):
    monkeypatch.setattr(scanner_steps, "CHUNK", 10)
    for step in range(20):
        store.schedule_relayed(f"a{step}")
    shard_steps = store.steps()
    call, calls = shard_steps._scripts.call, []

    def fails_the_second_time(*args, **arguments):
        calls.append(args)
        if len(calls) == 2:
            raise StoreUnavailable("claim", "gone")
        return call(*args, **arguments)

    monkeypatch.setattr(shard_steps._scripts, "call", fails_the_second_time)
    claimed, *_ = shard_steps.claim(20)
    assert [entry.task_id for entry in claimed] == [f"a{step}" for step in range(10)]


def test_an_entry_that_is_not_utf8_is_claimed_all_the_same(store):
    store.schedule_relayed("a")
    record = store.record("a")
    header_end = record.index(b":") + 1 + len(ROUTE)
    store.raw.hset(store.keys["records"], b"\xff", b"1R2:\xfe\xff" + record[header_end:])
    store.raw.zadd(store.keys["relay"], {record[header_end : header_end + 6] + b"\xff": NOW_MS})
    claimed, *_ = store.steps().claim(2)
    assert sorted(one.task_id for one in claimed) == ["a", "\ufffd"]
    assert sorted(one.destination for one in claimed) == [ROUTE, "\ufffd\ufffd"]
