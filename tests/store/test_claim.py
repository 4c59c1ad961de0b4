"""Claims of due entries: in order, each with a lease and its own token; and how they end."""

import json
from dataclasses import replace
from itertools import groupby

import pytest

from celery_delayq.core.clock import When, from_ms
from celery_delayq.core.store import Outcome, State
from celery_delayq.core.store.changes import Removal
from tests.store.support import FAR_MS, NOW_MS, ROUTE, tally
from tests.support.network import CUT

pytestmark = pytest.mark.core

LEASE_MS = 30_000
each_end = pytest.mark.parametrize("end", ["ack", "unsent", "unknown", "refused", "denied", "dead"])


def put(store, *ids, **options):
    for task_id in ids:
        store.schedule_relayed(task_id, **options)


def numbered(count):
    return [f"a{number}" for number in range(count)]


def ids_of(claims):
    return [one.task_id for one in claims]


def settle(shard_steps, end, claims):
    return shard_steps.ack(claims) if end == "ack" else shard_steps.nack(end, claims)


@pytest.mark.parametrize("share", [False, True])
def test_a_claim_brings_all_that_publishing_takes(store, shard_steps, share):
    store.schedule_relayed("a", NOW_MS - 5, payload="x", share=share)
    (entry,), aside, *_ = shard_steps.claim(1)
    assert aside == []
    assert (entry.task_id, entry.destination) == ("a", ROUTE)
    assert tally(entry) == (0, 0, False)
    message = json.loads(entry.message)
    assert (message["body"], message["headers"]["delayq_due"]) == ("x", NOW_MS - 5)
    assert store.score("leased", "a") == NOW_MS + LEASE_MS
    store.check()


def test_an_entry_is_not_claimed_one_microsecond_early(store, shard_steps):
    put(store, "a")
    store.set_us(NOW_MS * 1000 - 1)
    assert shard_steps.claim(1).entries == []
    store.set_us(NOW_MS * 1000)
    assert len(shard_steps.claim(1).entries) == 1


def test_a_claimed_entry_counts_seconds_by_redis_clock(store, shard_steps):
    put(store, "a")
    store.set_ms(NOW_MS + 86_400_000)
    (entry,) = shard_steps.claim(1).entries
    assert entry.seconds_until(from_ms(NOW_MS + 86_460_000)) == pytest.approx(60, abs=5)


def test_entries_for_lists_are_not_claimed_and_those_for_the_relay_not_moved(store, shard_steps):
    store.schedule("list")
    put(store, "relay")
    assert ids_of(shard_steps.claim(10).entries) == ["relay"]
    assert shard_steps.hand_over().handed_over == 1
    assert store.arrived() == ["list"]


def test_a_claim_ends_after_a_megabyte_and_takes_a_larger_entry_alone(store, shard_steps):
    put(store, *numbered(5), payload="x" * 300_000)
    put(store, "large", payload="x" * 1_100_000)
    put(store, "small")
    assert [len(shard_steps.claim(100).entries) for _ in range(4)] == [4, 2, 1, 0]


def test_no_token_is_used_twice(store):
    put(store, *numbered(20))
    scanners = [store.steps(), store.steps()]
    assert len({one.claim(1).entries[0].token for one in scanners for _ in range(10)}) == 20


def test_an_ack_that_comes_late_takes_nothing_of_a_claim_that_arrives_twice(store_between):
    store, shard_steps = store_between, store_between.steps()
    put(store, "a")
    claimed = shard_steps.claim(1).entries
    assert shard_steps.ack(claimed) == 1
    put(store, "a")
    store.set_us(NOW_MS * 1000 + 1)
    store.between.repeat("claim")
    assert store.places("a") == ["leased"]


def test_a_claim_of_many_is_made_in_chunks_that_redis_does_in_a_few_milliseconds(
    store, shard_steps, limits
):
    limits(hand_over_chunk=10)
    put(store, *numbered(35))
    claimed = shard_steps.claim(25).entries
    assert ids_of(claimed) == numbered(25)
    assert [len(list(same)) for _, same in groupby(one.token for one in claimed)] == [10, 10, 5]
    assert shard_steps.ack(claimed[:13]) == 13
    assert shard_steps.nack("unsent", claimed[13:]) == 12
    assert store.raw.zcard(store.keys["relay"]) == 22
    assert len(shard_steps.claim(100).entries) == 22


def test_a_claim_that_is_cut_short_by_an_outage_keeps_what_it_has(store_between, limits):
    limits(hand_over_chunk=10)
    store, between = store_between, store_between.between
    put(store, *numbered(20))
    between.before("claim", lambda: CUT if between.asked["claim"] > 1 else None)
    assert ids_of(store.steps().claim(20).entries) == numbered(10)
    assert between.asked["claim"] > 1


def test_an_entry_that_is_not_utf8_is_claimed_all_the_same(store, shard_steps):
    put(store, "a")
    record = store.record("a")
    header_end = record.index(b":") + 1 + len(ROUTE)
    store.raw.hset(store.keys["records"], b"\xff", b"1R2:\xfe\xff" + record[header_end:])
    store.raw.zadd(store.keys["relay"], {record[header_end : header_end + 6] + b"\xff": NOW_MS})
    claimed = shard_steps.claim(2).entries
    assert sorted(ids_of(claimed)) == ["a", "\ufffd"]
    assert sorted(one.destination for one in claimed) == [ROUTE, "\ufffd\ufffd"]


# How claims end: with an ack, or with one of the verdicts of a nack.


def test_an_ack_leaves_nothing_but_the_trace(store, shard_steps):
    put(store, "a", share=True)
    assert shard_steps.ack(shard_steps.claim(1).entries) == 1
    names = ("relay", "leased", "records", "templates", "template_uses", "claims")
    assert [name for name in names if store.raw.exists(store.keys[name])] == []
    assert store.entries.change("a", Removal())[0] is Outcome.HANDED_OVER


def test_the_end_of_a_token_is_not_the_token(store, shard_steps):
    put(store, "a")
    (claimed,) = shard_steps.claim(1).entries
    shorter = [replace(claimed, token=claimed.token[1:])]
    assert shard_steps.ack(shorter) == shard_steps.nack("unsent", shorter) == 0
    assert store.entries.state("a") is State.IN_FLIGHT


def scheduled_anew(store, *_):
    store.entries.change("a", Removal())
    put(store, "a", due_ms=FAR_MS)


def claimed_by_another(store, *_):
    another = store.steps()
    assert another.reclaim() == ids_of(another.claim(1).entries) == ["a"]


MEANWHILE = {
    "acknowledged": lambda _, shard_steps, claims: shard_steps.ack(claims),
    "taken back": lambda _, shard_steps, __: shard_steps.reclaim(),
    "claimed by another scanner": claimed_by_another,
    "cancelled": lambda store, *_: store.entries.change("a", Removal()),
    "rescheduled": lambda store, *_: store.reschedule("a", When("at", FAR_MS)),
    "scheduled anew": scheduled_anew,
}


@each_end
@pytest.mark.parametrize("meanwhile", MEANWHILE.values(), ids=MEANWHILE)
def test_a_late_step_does_nothing_to_what_became_of_the_entry(store, shard_steps, end, meanwhile):
    put(store, "a", share=True)
    claimed = shard_steps.claim(1).entries
    store.lease_out()
    meanwhile(store, shard_steps, claimed)
    before = store.snapshot()
    assert settle(shard_steps, end, claimed) == 0
    assert store.snapshot() == before


@each_end
def test_a_step_after_the_lease_ran_out_counts_while_no_other_took_the_entry(
    store, shard_steps, end
):
    put(store, "a")
    claimed = shard_steps.claim(1).entries
    store.set_ms(NOW_MS + 2 * LEASE_MS)
    assert settle(shard_steps, end, claimed) == 1
    store.check()


def test_an_entry_that_was_not_sent_goes_back_as_it_was(store, shard_steps):
    store.schedule_relayed("a", NOW_MS - 5)
    before = store.snapshot()
    assert shard_steps.nack("unsent", shard_steps.claim(1).entries) == 1
    assert store.snapshot() == before


def test_a_refusal_is_counted_and_waits_and_the_due_time_stays(store, shard_steps):
    store.schedule_relayed("a", NOW_MS - 5)
    shard_steps.nack("refused", shard_steps.claim(1).entries, wait=1.5)
    assert store.score("refused", "a") == NOW_MS + 1500
    entry = store.entries.find("a")
    assert (entry.due_ms, entry.state) == (NOW_MS - 5, State.SCHEDULED)
    store.set_ms(NOW_MS + 1499)
    assert shard_steps.hand_over().back == NOW_MS + 1500
    assert shard_steps.claim(1).entries == []
    store.set_ms(NOW_MS + 1500)
    assert shard_steps.hand_over().back is None
    assert store.score("relay", "a") == NOW_MS - 5
    store.check()
    (again,) = shard_steps.claim(1).entries
    assert tally(again) == (1, 1, False)
    assert json.loads(again.message)["headers"]["delayq_due"] == NOW_MS - 5


WAITING = "refused", "denied"


def test_attempts_and_refusals_are_counted_and_uncertainty_stays(store, shard_steps):
    """One that was not sent counts as neither; a refused or denied one waits for its next try."""
    store.schedule_relayed("a", NOW_MS - 5)
    tallies = []
    for verdict in ("refused", "unsent", "unknown", "denied", "refused", "dead"):
        claimed = shard_steps.claim(1).entries
        tallies.append(tally(*claimed))
        shard_steps.nack(verdict, claimed, wait=0 if verdict in WAITING else 60)
        shard_steps.hand_over()
    certain = [(0, 0, False), (1, 1, False), (1, 1, False)]
    assert tallies == [*certain, (2, 1, True), (3, 1, True), (4, 2, True)]
    assert store.entries.find("a").due_ms == NOW_MS - 5


def test_the_last_refusal_sets_aside_with_the_reason(store, shard_steps):
    store.schedule_relayed("a", NOW_MS - 5, share=True)
    assert shard_steps.nack("dead", shard_steps.claim(1).entries, reason="é: NO_ROUTE") == 1
    entry = store.entries.find("a")
    assert (entry.state, entry.facts.error, entry.due_ms) == (State.DEAD, "é: NO_ROUTE", NOW_MS - 5)
    assert store.places("a") == ["dead"]
    assert shard_steps.claim(1).entries == []
    store.check()


def test_a_step_touches_only_the_entries_it_names(store, shard_steps):
    put(store, *"abc")
    a, b, c = shard_steps.claim(3).entries
    assert shard_steps.ack([b]) == 1
    assert shard_steps.nack("unsent", [a, b]) == 1
    assert [store.places(one) for one in "abc"] == [["relay"], [], ["leased"]]
    assert shard_steps.ack([c]) == 1


# Reclaim takes back leases that ran out, and no others.


@pytest.fixture
def leased(store, shard_steps):
    store.schedule_relayed("a", NOW_MS - 5)
    shard_steps.claim(1)
    return store


def test_a_lease_is_not_taken_back_one_millisecond_early_and_then_with_a_mark(leased, shard_steps):
    leased.set_ms(NOW_MS + LEASE_MS - 1)
    assert shard_steps.reclaim() == []
    leased.set_ms(NOW_MS + LEASE_MS)
    assert shard_steps.reclaim() == ["a"]
    assert leased.score("relay", "a") == NOW_MS - 5
    # It may be a second copy.
    assert tally(*shard_steps.claim(1).entries) == (1, 0, True)


def test_leases_are_taken_back_batch_by_batch(store):
    shard_steps = store.steps(batch_size=10)
    put(store, *numbered(25))
    shard_steps.claim(100)
    store.lease_out()
    assert [len(shard_steps.reclaim()) for _ in range(4)] == [10, 10, 5, 0]
    store.check()


def test_a_lease_further_off_than_it_was_long_counts_as_ended(leased, shard_steps):
    # Redis's clock was an hour ahead, and was corrected.
    leased.set_ms(NOW_MS - 3_600_000)
    assert shard_steps.reclaim() == ["a"]


def test_a_long_lease_of_another_scanner_is_not_taken_for_a_clock_set_back(store):
    store.schedule_relayed("long")
    store.steps(lease=3600).claim(1)
    assert store.steps(lease=1).reclaim() == []


def test_a_lease_without_a_claim_is_taken_back(leased, shard_steps):
    leased.raw.delete(leased.keys["claims"])
    assert shard_steps.reclaim() == ["a"]
    assert leased.score("relay", "a") == NOW_MS - 5
    leased.check()


def test_an_id_that_is_no_text_is_taken_back_with_the_others(store, shard_steps):
    put(store, *"abc")
    shard_steps.claim(3)
    member = store.raw.zrange(store.keys["leased"], 1, 1)[0]
    store.raw.zrem(store.keys["leased"], member)
    store.raw.zadd(store.keys["leased"], {member[:6] + b"\xff\xfe": 0})
    store.lease_out()
    assert sorted(shard_steps.reclaim()) == ["a", "c", "\ufffd\ufffd"]
    assert store.raw.zcard(store.keys["leased"]) == 0
