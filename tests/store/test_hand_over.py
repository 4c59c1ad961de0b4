"""Delivery: due entries, in order, once, and in bounded steps."""

import json

import pytest

from celery_delayq.core import clock
from celery_delayq.core.clock import When
from celery_delayq.core.hooks import IDS, LATENESS
from celery_delayq.core.store.delivery import MAX_BYTES
from celery_delayq.errors import StoreError
from tests.store import support
from tests.store.support import FAR_MS, NOW_MS

pytestmark = pytest.mark.core

SHARE = pytest.mark.parametrize("share", [False, True], ids=["whole", "template"])


def drain(shard_steps) -> list[int]:
    """Run pass after pass, like the scanner; returns how many entries each moved."""
    moved = []
    while True:
        seen = shard_steps.hand_over()
        moved.append(seen.handed_over)
        if not seen.is_past(seen.due):
            return moved


def test_an_entry_is_not_handed_over_one_microsecond_early(store):
    store.schedule("a", NOW_MS)
    store.set_us(NOW_MS * 1000 - 1)
    assert store.steps().hand_over().handed_over == 0
    store.set_us(NOW_MS * 1000)
    assert store.steps().hand_over().handed_over == 1


def test_by_redis_own_clock_each_pass_moves_what_is_due_and_nothing_else(real_store):
    shard_steps, raw = real_store.steps(), real_store.raw
    start = raw.time()[0] * 1000 + 20
    dues = {f"a{ms}": start + ms for ms in range(100)}
    for task_id, due_ms in dues.items():
        real_store.schedule(task_id, due_ms)
    seen = 0
    while seen < len(dues):
        before = raw.time()
        passed = shard_steps.hand_over()
        after = raw.time()
        assert before <= (passed.now_us // 1_000_000, passed.now_us % 1_000_000) <= after
        seen += passed.handed_over
        assert seen == sum(due_ms * 1000 <= passed.now_us for due_ms in dues.values())


@SHARE
def test_the_message_arrives_with_the_due_time_filled_in(store, share):
    payload = 'é "\\\n\x00 }} \U0001f600'
    store.schedule("a", NOW_MS - 1, payload=payload, share=share)
    store.steps().hand_over()
    message = json.loads(store.raw.rpop("celery"))
    assert message["body"] == payload
    assert message["headers"]["delayq_due"] == NOW_MS - 1
    if share:
        assert message["headers"]["root_id"] == message["headers"]["id"] == "a"
        assert message["properties"]["delivery_tag"] == f"a{NOW_MS * 1000}"


def test_equal_due_times_keep_insertion_order_over_a_carry_of_the_number(store):
    # The 256th and the 65,536th number end in zero bytes; their ids sort the other way around.
    store.raw.hset(store.keys["meta"], "seq", 65_400)
    expected = [f"a{999 - step}" for step in range(300)]
    for task_id in expected:
        store.schedule(task_id)
    drain(store.steps())
    assert store.arrived() == expected


def test_equal_due_times_keep_insertion_order_through_a_reschedule(store):
    for name in "abc":
        store.schedule(name, FAR_MS)
    for name in "cab":
        store.reschedule(name, When("at", NOW_MS))
    store.steps().hand_over()
    assert store.arrived() == ["a", "b", "c"]


def test_entries_for_several_queues_each_reach_theirs_in_order(store):
    for step in range(30):
        store.schedule(f"a{step}", to=f"queue{step % 3}", share=step % 2 == 0)
    assert store.steps().hand_over().handed_over == 30
    for queue in range(3):
        assert store.arrived(f"queue{queue}") == [f"a{step}" for step in range(queue, 30, 3)]


@pytest.mark.parametrize("queue", ["a:1", "é", "12:celery", "celery\x06\x163", "with blank", "1"])
def test_any_name_of_a_list_is_reached(store, queue):
    store.schedule("x", to=queue)
    store.schedule("y", to=queue, share=True)
    store.steps().hand_over()
    assert store.arrived(queue) == ["x", "y"]


def test_a_pass_says_what_comes_next(store, monkeypatch):
    monkeypatch.setattr(clock, "monotonic", lambda: 100.0)
    store.schedule("a", FAR_MS)
    store.schedule_relayed("b", FAR_MS + 1)
    seen = store.steps().hand_over()
    assert (seen.now_us, seen.due, seen.relay, seen.leased) == (
        NOW_MS * 1000,
        FAR_MS,
        FAR_MS + 1,
        None,
    )
    assert seen.seconds_until(seen.due) == pytest.approx(86_400)
    assert not seen.is_past(seen.due)


def test_seconds_left_are_counted_by_redis_clock_to_the_microsecond(store, monkeypatch):
    monkeypatch.setattr(clock, "monotonic", lambda: 100.0)
    store.schedule("a", NOW_MS + 1)
    store.set_us(NOW_MS * 1000 + 1)
    seen = store.steps().hand_over()
    assert seen.seconds_until(seen.due) == pytest.approx(0.000999, abs=1e-9)
    monkeypatch.setattr(clock, "monotonic", lambda: 101.0)
    assert seen.seconds_until(seen.due) == pytest.approx(-0.999001, abs=1e-9)
    assert seen.seconds_until(seen.relay) is None


def test_redis_is_taken_to_have_looked_at_its_clock_half_way(store_between, monkeypatch):
    now = [10.0]
    monkeypatch.setattr(clock, "monotonic", lambda: now[0])
    store_between.between.after("hand_over", lambda: now.append(now.pop() + 4))
    assert store_between.steps().hand_over().read_at == 12.0


@SHARE
def test_a_hand_over_returns_ids_and_how_late_each_was_if_the_caller_asks(store, share):
    for task_id, after_ms in (("a", 0), ("b", 1500), ("é c", 1999)):
        store.schedule(task_id, NOW_MS + after_ms, share=share)
    store.schedule("elsewhere", NOW_MS + 1000, to="other", share=share)
    store.raw.set("broken", "no list")
    store.schedule("refused", to="broken")
    store.schedule("later", FAR_MS)
    store.set_us(NOW_MS * 1000 + 2_000_250)

    seen = store.steps().hand_over(wants=IDS + LATENESS)

    told = dict(zip(seen.ids, seen.late, strict=True))
    assert told == {"a": 2.00025, "b": 0.50025, "é c": 0.00125, "elsewhere": 1.00025}
    for number, (wants, asked) in enumerate(((0, []), (IDS, ["ids"]), (LATENESS, ["late"]))):
        store.schedule(f"d{number}", NOW_MS)
        seen = store.steps().hand_over(wants=wants)
        assert [name for name in ("ids", "late") if getattr(seen, name)] == asked


@pytest.mark.parametrize("how", ["scheduled", "moved"])
def test_an_entry_put_into_the_past_is_late_from_then_on(store, how):
    store.schedule("a", 1000 if how == "scheduled" else FAR_MS)
    store.set_ms(NOW_MS + 3000)
    late = 3.0
    if how != "scheduled":
        store.reschedule("a", When("at", 1000))
        late = 0.0

    assert store.steps().hand_over(wants=LATENESS).late == [late]


@SHARE
def test_nothing_of_an_entry_is_left_but_its_tombstone(store, share):
    store.schedule("a", share=share)
    store.steps().hand_over()
    names = ("due", "records", "templates", "template_uses", "claims", "errors", "dead")
    assert [name for name in names if store.raw.exists(store.keys[name])] == []
    assert store.raw.hlen(store.keys["tombstones"]) == 1


# Bounds. A call moves a bounded number of entries, so its time is bounded on any machine.


def test_two_thousand_on_one_millisecond_move_in_full_batches_and_in_order(store):
    ids = store.flood(2_000)
    assert drain(store.steps(batch_size=200)) == [200] * 10
    assert store.arrived() == ids
    store.check()


@pytest.mark.parametrize("where", ["message", "template", "record of a dead one"])
def test_a_batch_ends_after_a_megabyte(store, shard_steps, monkeypatch, where):
    large = "x" * 300_000
    if where == "template":
        lines = [*support.LINES]
        lines[3] = f', "headers": {{"large": "{large}", "id": "'
        monkeypatch.setattr(support, "LINES", lines)
    for number in range(9):
        payload = large if where == "message" else ""
        store.schedule(f"a{number}", payload=payload, share=where == "template")
        if where == "record of a dead one":
            store.raw.hset(store.keys["records"], f"a{number}", "9" + large)
    taken = []
    while store.raw.zcard(store.keys["due"]):
        seen = shard_steps.hand_over()
        taken.append(seen.handed_over + len(seen.dead))
    assert taken == [4, 4, 1]


def test_small_entries_are_read_some_at_a_time(store):
    store.flood(200)
    store.raw.config_resetstat()
    assert store.steps().hand_over().handed_over == 200
    assert store.raw.info("commandstats")["cmdstat_hmget"]["calls"] < 20


def test_an_entry_larger_than_the_bound_still_moves_alone(store):
    store.schedule("large", payload="x" * (MAX_BYTES + 1))
    store.schedule("small")
    assert drain(store.steps()) == [1, 1]


@pytest.mark.parametrize("key", ["dead", "errors"])
def test_an_entry_that_cannot_be_kept_as_dead_keeps_the_others_back(store, key):
    store.schedule("good")
    store.schedule("bad", to="strange")
    store.raw.set("strange", "somebody's")
    store.raw.set(store.keys[key], "somebody's")
    before = store.contents()
    with pytest.raises(StoreError):
        store.steps().hand_over()
    # Its earlier heartbeat.
    store.raw.delete(store.keys["scanners"], store.keys["heartbeats"])
    assert store.contents() == before
