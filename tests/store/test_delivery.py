"""Due entries leave: in order, in bounded steps, a backlog at its rate, and none too late."""

import json

import pytest

from celery_delayq.core import clock
from celery_delayq.core.clock import When
from celery_delayq.core.hooks import IDS, LATENESS
from celery_delayq.core.store import Outcome
from celery_delayq.core.store.changes import Removal
from celery_delayq.core.store.delivery import MAX_BYTES
from celery_delayq.core.store.record import Extras, lane_for
from celery_delayq.errors import StoreError
from tests.store import support
from tests.store.support import CLOCK, FAR_MS, NOW_MS

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
def test_the_message_arrives_with_its_due_time_and_leaves_nothing_but_a_tombstone(store, share):
    payload = 'é "\\\n\x00 }} \U0001f600'
    store.schedule("a", NOW_MS - 1, payload=payload, share=share)
    store.steps().hand_over()
    message = json.loads(store.raw.rpop("celery"))
    assert message["body"] == payload
    assert message["headers"]["delayq_due"] == NOW_MS - 1
    if share:
        assert message["headers"]["root_id"] == message["headers"]["id"] == "a"
        assert message["properties"]["delivery_tag"] == f"a{NOW_MS * 1000}"
    names = ("due", "records", "templates", "template_uses", "claims", "errors", "dead")
    assert [name for name in names if store.raw.exists(store.keys[name])] == []
    assert store.raw.hlen(store.keys["tombstones"]) == 1


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


# A backlog of more than a batch: entries that have just fallen due go beside it, each once.


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


# `delayq_catch_up`: a backlog leaves at a rate, which does not delay entries that fall due.


def overdue(store, count, *, relayed=False, start=0):
    schedule = store.schedule_relayed if relayed else store.schedule
    for step in range(start, start + count):
        schedule(f"old{step:03}", NOW_MS - 10_000 + step)


def went(shard_steps, *, relayed) -> int:
    return len(shard_steps.claim(100).entries) if relayed else shard_steps.hand_over().handed_over


each_way = pytest.mark.parametrize("relayed", [False, True], ids=["direct", "relayed"])


@each_way
def test_overdue_entries_leave_at_the_rate_in_order_of_due_times(store, relayed):
    overdue(store, 60, relayed=relayed)
    shard_steps, counted, now = store.steps(catch_up=10), [], NOW_MS
    for _ in range(31):
        counted.append(went(shard_steps, relayed=relayed))
        now += 100
        store.set_ms(now)
    # The unused rate of up to a tenth of a second may be made up for.
    assert counted == [2, *[1] * 30]
    if not relayed:
        assert store.arrived() == [f"old{step:03}" for step in range(32)]
    store.check()


@each_way
def test_the_head_is_when_the_next_one_may_leave(store, relayed):
    overdue(store, 9, relayed=relayed)
    shard_steps = store.steps(catch_up=10)
    went(shard_steps, relayed=relayed)
    seen = shard_steps.hand_over(asleep=10)
    head = seen.relay if relayed else seen.due
    assert (head, seen.has_timer) == (NOW_MS + 100, True)
    store.set_ms(head - 1)
    assert went(shard_steps, relayed=relayed) == 0
    store.set_ms(head)
    assert went(shard_steps, relayed=relayed) == 1


@each_way
def test_an_entry_that_falls_due_meanwhile_leaves_at_once_and_is_a_head(store, relayed):
    overdue(store, 9, relayed=relayed)
    shard_steps = store.steps(catch_up=0.1)
    went(shard_steps, relayed=relayed)
    schedule = store.schedule_relayed if relayed else store.schedule
    for step in range(5):
        schedule(f"new{step}", NOW_MS + 50)
    seen = shard_steps.hand_over()
    assert (seen.relay if relayed else seen.due) == NOW_MS + 50
    store.set_ms(NOW_MS + 50)
    assert went(shard_steps, relayed=relayed) == 5
    store.check()


def test_an_entry_is_overdue_from_one_millisecond_past_a_second(store):
    store.schedule("a", NOW_MS - 1000)
    store.schedule("b", NOW_MS - 1001)
    shard_steps = store.steps(catch_up=0.1)
    overdue(store, 3)
    shard_steps.hand_over()
    assert store.arrived()[0] == "a"
    assert store.entries.state("b") is not None


def test_scanners_and_both_ways_share_the_rate(store):
    overdue(store, 5)
    overdue(store, 5, relayed=True, start=5)
    steps_by_shard = store.steps(catch_up=10), store.steps(catch_up=10)
    moved = [
        went(shard_steps, relayed=relayed)
        for relayed in (False, True)
        for shard_steps in steps_by_shard
    ]
    assert moved == [2, 0, 0, 0]


def test_shards_share_the_rate(store):
    overdue(store, 9)
    store.set(shards=2)
    store.raw.hset(store.keys["meta"], "shards", 2)
    shard_steps = store.steps(catch_up=10)
    shard_steps.hand_over()
    store.set_ms(shard_steps.hand_over().due)
    shard_steps.hand_over()
    assert shard_steps.hand_over().due == int(store.raw.get(CLOCK)) // 1000 + 200


def test_without_the_setting_nothing_is_paced_or_noted(store):
    overdue(store, 20)
    assert store.steps().hand_over().handed_over == 20
    assert not store.raw.hexists(store.keys["meta"], "caught_up")


def test_parking_an_entry_uses_up_none_of_the_rate(store):
    store.entries.pause(lane_for(), "")
    overdue(store, 50)
    shard_steps = store.steps(catch_up=1)
    shard_steps.hand_over()
    assert store.entries.counts().paused == 50


def test_a_clock_that_was_set_back_holds_up_nothing_for_longer_than_a_token(store):
    overdue(store, 9)
    store.set_ms(FAR_MS)
    shard_steps = store.steps(catch_up=10)
    shard_steps.hand_over()
    store.set_ms(NOW_MS)
    assert shard_steps.hand_over().due == NOW_MS + 100


def test_a_high_rate_is_reached(store):
    ids = store.flood(3000, NOW_MS - 5000)
    shard_steps, now = store.steps(batch_size=1000, catch_up=10_000), NOW_MS
    moved = 0
    for _ in range(10):
        moved += shard_steps.hand_over().handed_over
        now += 10
        store.set_ms(now)
    assert moved == 1001 + 900
    assert store.arrived() == ids[:1901]
    store.check()


# Late policies: an entry that is later than its grace period does not leave.


GRACE = Extras(grace_ms=5000)
ALL = lane_for()


def put_late(store, task_id, due_ms=NOW_MS, *, relayed=False, extras=GRACE, **options):
    put = store.schedule_relayed if relayed else store.schedule
    put(task_id, due_ms, extras=extras, **options)


def deliver(store, shard_steps, *, relayed):
    """Make one delivery, direct or relayed; returns the entries that went, and those skipped."""
    if relayed:
        claimed = shard_steps.claim(100)
        return [one.task_id for one in claimed.entries], claimed.skipped
    seen = shard_steps.hand_over()
    return store.arrived(), seen.skipped


@each_way
def test_at_the_end_of_its_grace_an_entry_leaves_and_a_millisecond_later_it_is_skipped(
    store, relayed
):
    shard_steps = store.steps()
    put_late(store, "a", relayed=relayed)
    store.set_ms(NOW_MS + 5000)
    assert deliver(store, shard_steps, relayed=relayed) == (["a"], [])
    put_late(store, "b", relayed=relayed)
    store.set_ms(NOW_MS + 5001)
    went, skipped = deliver(store, shard_steps, relayed=relayed)
    assert "b" not in went
    assert skipped == [("b", "skipped: 5 s late")]
    assert store.entries.state("b") is None
    store.check()


@each_way
def test_beside_a_skipped_entry_those_in_time_and_without_a_policy_go(store, relayed):
    for number in range(6):
        extras = (GRACE, Extras(tags=("x",)), Extras())[number % 3]
        put_late(store, f"a{number}", NOW_MS + number, relayed=relayed, extras=extras, share=True)
    store.set_ms(NOW_MS + 5002)
    went, skipped = deliver(store, store.steps(), relayed=relayed)
    assert went == ["a1", "a2", "a3", "a4", "a5"]
    assert [task_id for task_id, _ in skipped] == ["a0"]
    store.check()


@each_way
def test_nothing_is_left_of_a_skipped_entry_but_its_tombstone(store, relayed):
    extras = Extras(key="k", tags=("x", "y"), grace_ms=0)
    put_late(store, "a", relayed=relayed, extras=extras, share=True)
    store.set_ms(NOW_MS + 1)
    deliver(store, store.steps(), relayed=relayed)
    assert store.entries.change("a", Removal())[0] is Outcome.NOT_FOUND
    assert store.reschedule("a", When("at", FAR_MS))[0] is Outcome.NOT_FOUND
    assert store.entries.handed_over_ms("a") is None
    assert store.raw.hget(store.keys["tombstones"], "a") == b"s%d" % (NOW_MS + 1)
    left = ("due", "relay", "records", "holders", "tags", "templates", "claims", "errors")
    assert [name for name in left if store.raw.exists(store.keys[name])] == []
    put_late(store, "b", FAR_MS, extras=extras)
    store.check()


@each_way
def test_revoked_is_owed_at_once_for_a_skipped_entry_where_there_is_a_backend(store, relayed):
    for owes in (False, True):
        put_late(store, "a", relayed=relayed, share=True)
        store.set_ms(NOW_MS + 5001)
        shard_steps = store.steps(owes=owes)
        deliver(store, shard_steps, relayed=relayed)
        owed = shard_steps.owed()
        assert [one.task_id for one in owed] == ["a"] * owes
    assert (owed[0].outcome, owed[0].reason) == (Outcome.DONE, "skipped: 5 s late")
    assert b'"id": "a"' in owed[0].message


def test_an_entry_that_may_have_been_delivered_is_owed_as_uncertain(store):
    store.at("uncertain", extras=GRACE)
    shard_steps = store.steps(owes=True)
    store.set_ms(NOW_MS + 5001)
    assert shard_steps.claim(1).skipped
    assert shard_steps.owed()[0].outcome is Outcome.UNCERTAIN


@pytest.mark.parametrize("place", ["uncertain", "refused"])
def test_nothing_is_left_of_the_attempts_of_one_that_is_skipped(store, place):
    store.at(place, wait=0, extras=GRACE)
    store.set_ms(NOW_MS + 5001)
    shard_steps = store.steps()
    shard_steps.hand_over()
    assert shard_steps.claim(1).skipped
    assert not store.raw.exists(store.keys["claims"], store.keys["errors"])
    store.check()


def test_an_entry_given_another_time_is_late_from_then_on(store):
    put_late(store, "a")
    store.set_ms(NOW_MS + 60_000)
    store.reschedule("a", When("at", NOW_MS + 58_000))
    assert store.steps().hand_over().handed_over == 1


@each_way
@pytest.mark.parametrize("late", [False, True], ids=["excused", "late"])
def test_a_pause_counts_only_if_that_was_asked_for(store, relayed, late):
    store.entries.pause(ALL, "", late=late)
    put_late(store, "a", relayed=relayed, share=True)
    changed = store.entries.find("a").changed_us
    shard_steps = store.steps()
    deliver(store, shard_steps, relayed=relayed)
    store.set_ms(NOW_MS + 60_000)
    store.entries.resume(ALL)
    shard_steps.hand_over()
    if not late and relayed:
        entry = store.entries.find("a")
        assert (entry.extras.grace_ms, entry.extras.excused_ms) == (5000, NOW_MS + 60_000)
        assert (entry.due_ms, entry.changed_us) == (NOW_MS, changed)
        store.set_ms(NOW_MS + 65_000)
    went, _ = deliver(store, shard_steps, relayed=relayed)
    assert went == ([] if late else ["a"])
    store.check()


@pytest.fixture
def excuse(store):
    """Schedule an entry that is parked when due; let it come back at a time."""

    def come_back(ms=NOW_MS, **options):
        store.entries.pause(ALL, "")
        put_late(store, "a", relayed=True, **options)
        message = store.entries.find("a").message
        store.take("parked", "a")
        store.set_ms(ms)
        store.entries.resume(ALL)
        shard_steps = store.steps()
        shard_steps.hand_over()
        return shard_steps, message

    return come_back


def test_an_excuse_ends_when_the_grace_is_over_once_more(store, excuse):
    shard_steps, _ = excuse(NOW_MS + 60_000)
    store.set_ms(NOW_MS + 65_001)
    assert shard_steps.claim(1).skipped == [("a", "skipped: 65 s late")]


def test_an_excused_entry_keeps_its_key_and_tags(store, excuse):
    extras = Extras(key="k:1", tags=("a:1", "b"), grace_ms=1)
    _, message = excuse(extras=extras, payload="}}:", share=True)
    entry = store.entries.find("a")
    assert entry.extras == Extras("k:1", ("a:1", "b"), 1, NOW_MS)
    assert entry.message == message
    store.check()
