"""Pausing: any step parks due entries of a paused lane that it meets, until a resume."""

from dataclasses import replace

import pytest

from celery_delayq.core.clock import When
from celery_delayq.core.store import Outcome, State
from celery_delayq.core.store.changes import Removal
from celery_delayq.core.store.record import FLAGS, RUN_NOW, Extras, header_for, labels_for, lane_for
from tests.store import requests
from tests.store.support import FAR_MS, NOW_MS, ROUTE, new_record

pytestmark = pytest.mark.core

ALL = lane_for()
MAIL = lane_for(queue="mail")
SLOW = lane_for(task="slow")


def put(store, task_id, due_ms=NOW_MS, *, queue="mail", task="t", relayed=False, extras=None):
    """Schedule an entry of a queue and a task; it goes to that queue's list, or is relayed."""
    where = header_for("R", ROUTE) if relayed else header_for("L", queue)
    record = replace(new_record(task_id, where), labels=labels_for(task, queue))
    store.put(task_id, record.with_extras(extras) if extras else record, due_ms)


def park(store, *ids, lane=MAIL, due_ms=NOW_MS, batch_size=200, **options):
    """Pause a lane that holds due entries, and let a scanner meet them; returns its steps."""
    store.entries.pause(lane, "mail")
    for task_id in ids:
        put(store, task_id, due_ms, **options)
    shard_steps = store.steps(batch_size=batch_size)
    shard_steps.hand_over()
    if options.get("relayed"):
        shard_steps.claim(1000)
    return shard_steps


def numbered(count):
    return [f"a{number:02}" for number in range(count)]


def drain(shard_steps) -> int:
    went = 0
    while True:
        seen = shard_steps.hand_over()
        went += seen.handed_over
        if not (seen.is_past(seen.due) or seen.is_past(seen.back)):
            return went


def state(store, task_id):
    return store.entries.state(task_id)


@pytest.mark.parametrize("lane", [lane_for(queue="other"), lane_for(task="mail"), SLOW])
def test_an_entry_outside_the_paused_lane_leaves(store, lane):
    store.entries.pause(lane, "x")
    put(store, "a")
    assert store.steps().hand_over().handed_over == 1


def test_neighbours_of_one_list_and_another_task_are_told_apart(store):
    store.entries.pause(SLOW, "slow")
    for step in range(9):
        put(store, f"a{step}", NOW_MS + step // 3, task="slow" if step % 2 else "quick")
    store.set_ms(NOW_MS + 9)
    assert store.steps().hand_over().handed_over == 5
    assert store.arrived("mail") == ["a0", "a2", "a4", "a6", "a8"]
    assert store.entries.counts().paused == 4
    store.check()


def test_an_entry_that_is_to_run_now_passes_a_pause(store, shard_steps):
    store.entries.pause(ALL, "")
    for task_id, relayed in (("a", False), ("b", True)):
        put(store, task_id, relayed=relayed)
        record = bytearray(store.record(task_id))
        record[record.index(b":") + 1 + int(record[2 : record.index(b":")]) + FLAGS] += RUN_NOW
        store.raw.hset(store.keys["records"], task_id, bytes(record))
    assert shard_steps.hand_over().handed_over == 1
    assert len(shard_steps.claim(1).entries) == 1


def test_resumed_entries_come_back_in_the_order_of_due_times(store, shard_steps):
    store.entries.pause(MAIL, "mail")
    for step in (3, 1, 2):
        put(store, f"a{step}", NOW_MS + step)
    put(store, "b", NOW_MS + 2)
    store.set_ms(NOW_MS + 5)
    shard_steps.hand_over()
    assert store.entries.resume(MAIL)
    assert drain(shard_steps) == 4
    assert store.arrived("mail") == ["a1", "a2", "b", "a3"]
    assert store.entries.pauses() == []
    store.check()


def test_a_resumed_entry_comes_back_with_the_record_and_score_that_it_had(store):
    put(store, "a", NOW_MS - 7, relayed=True)
    before = store.snapshot()
    shard_steps = park(store, lane=ALL, relayed=True)
    assert store.places("a") == ["parked"]
    store.entries.resume(ALL)
    shard_steps.hand_over()
    after = store.snapshot()
    # The lane is noted as coming back until its entries have left.
    for of_scanners in ("scanners", "heartbeats", "paused"):
        after.pop(store.keys[of_scanners].encode())
    assert after == before
    assert [one.task_id for one in shard_steps.claim(1).entries] == ["a"]
    shard_steps.hand_over()
    assert store.entries.pauses() == []


def test_while_a_lane_comes_back_an_entry_that_falls_due_goes_at_once(store):
    shard_steps = park(store, "old")
    store.entries.resume(MAIL, 0.01)
    shard_steps.hand_over()
    put(store, "new", NOW_MS - 1)
    assert shard_steps.hand_over().handed_over == 1


def test_at_a_rate_a_lane_comes_back_in_steps_and_the_next_one_is_a_head(store, shard_steps):
    store.entries.pause(MAIL, "mail")
    for step in range(50):
        put(store, f"a{step:02}", NOW_MS - 50 + step)
    shard_steps.hand_over()
    store.entries.resume(MAIL, 100)
    times = []
    while (seen := shard_steps.hand_over(asleep=10)).back is not None:
        times.append((seen.now_us // 1000 - NOW_MS, seen.handed_over, seen.back - NOW_MS))
        assert seen.has_timer
        store.set_ms(seen.back - 1)
        assert shard_steps.hand_over(asleep=10).handed_over == 0
        store.set_ms(seen.back)
    assert times == [(0, 10, 100), (100, 10, 200), (200, 10, 300), (300, 10, 400)]
    assert seen.handed_over == 10
    assert store.arrived("mail") == numbered(50)


def test_at_a_rate_of_less_than_ten_entries_come_back_one_by_one(store):
    shard_steps = park(store, *numbered(3))
    store.entries.resume(MAIL, 0.5)
    for after_ms, went in ((0, 1), (1999, 0), (2000, 1)):
        store.set_ms(NOW_MS + after_ms)
        assert shard_steps.hand_over().handed_over == went


def test_a_clock_that_was_set_back_delays_returning_entries_by_no_more_than_a_step(store):
    shard_steps = park(store, *numbered(3), due_ms=NOW_MS - 10_000_000)
    store.entries.resume(MAIL, 4)
    assert drain(shard_steps) == 1
    back_ms = NOW_MS - 3_600_000
    store.set_ms(back_ms)
    told = shard_steps.hand_over()
    assert (told.handed_over, told.back) == (0, back_ms + 250)
    for after_ms, went in ((249, 0), (250, 1), (500, 1)):
        store.set_ms(back_ms + after_ms)
        assert drain(shard_steps) == went
    assert store.entries.counts().paused == 0


def test_two_scanners_share_the_rate(store):
    first = park(store, *numbered(40))
    store.entries.resume(MAIL, 100)
    assert [one.hand_over().handed_over for one in (first, store.steps())] == [10, 0]


def test_after_a_time_without_scanners_a_second_s_worth_comes_at_most(store):
    shard_steps = park(store, *numbered(300), batch_size=1000)
    store.entries.resume(MAIL, 100)
    store.set_ms(NOW_MS + 3_600_000)
    assert [shard_steps.hand_over().handed_over for _ in range(2)] == [100, 0]


def test_of_a_lane_that_is_paused_again_while_it_comes_back_the_rest_stays(store):
    shard_steps = park(store, *numbered(30))
    store.entries.resume(MAIL, 100)
    assert shard_steps.hand_over().handed_over == 10
    store.entries.pause(MAIL, "mail")
    store.set_ms(NOW_MS + 60_000)
    seen = shard_steps.hand_over()
    assert (seen.handed_over, seen.back) == (0, None)
    assert store.entries.counts().paused == 20
    [pause] = store.entries.pauses()
    assert (pause.queue, pause.resumed, pause.parked) == ("mail", False, 20)
    store.check()


def test_an_entry_in_two_pauses_is_parked_in_the_other_when_one_is_resumed(store):
    store.entries.pause(ALL, "")
    put(store, "b", queue="other")
    shard_steps = park(store, "a")
    store.entries.resume(ALL)
    assert drain(shard_steps) == 1
    assert store.arrived("other") == ["b"]
    assert state(store, "a") is State.PAUSED
    store.entries.resume(MAIL)
    assert drain(shard_steps) == 1
    store.check()


def test_a_thousand_at_most_come_back_in_a_step(store):
    store.flood(1500)
    shard_steps = park(store, lane=ALL, batch_size=1000)
    while shard_steps.hand_over().is_past(store.score("due", "a1499")):
        pass
    assert store.entries.counts().paused == 1500
    store.entries.resume(ALL)
    seen = shard_steps.hand_over()
    assert (store.entries.pauses()[0].parked, store.entries.counts().paused) == (500, 0)
    assert seen.is_past(seen.back)
    assert seen.handed_over + drain(shard_steps) == 1500
    store.check()


@pytest.mark.parametrize("relayed", [False, True])
def test_a_parked_entry_is_found_cancelled_and_moved(store, relayed):
    park(store, *"abc", due_ms=NOW_MS - 1, relayed=relayed, extras=Extras(tags=("x",)))
    assert store.entries.find("a").due_ms == NOW_MS - 1
    assert store.entries.change("a", Removal())[0] is Outcome.DONE
    assert store.reschedule("b", When("at", FAR_MS)) == (Outcome.DONE, FAR_MS)
    moved = "relay" if relayed else "due"
    assert [store.places(one) for one in "abc"] == [[], [moved], ["parked"]]
    store.check()


def test_a_parked_entry_holds_its_key(store):
    park(store, "a", extras=Extras(key="k"))
    with pytest.raises(Exception, match="a"):
        put(store, "b", extras=Extras(key="k"))


@pytest.mark.parametrize("is_met", [False, True], ids=["not met yet", "parked"])
@pytest.mark.parametrize(("due", "since"), [(-5000, 0), (2000, 2000), (5000, None)])
def test_a_pause_tells_since_when_its_first_entry_is_both_due_and_paused(store, is_met, due, since):
    store.entries.pause(MAIL, "mail")
    put(store, "a", NOW_MS + due)
    put(store, "b", NOW_MS + max(due, 2500))
    store.set_ms(NOW_MS + 3000)
    if is_met:
        store.steps().hand_over()

    [pause] = store.entries.pauses()

    expected = None if since is None else (NOW_MS + since) / 1000
    assert (pause.held_since and pause.held_since.timestamp()) == expected
    assert pause.seconds_held(NOW_MS + 3000) == (0 if since is None else 3 - since / 1000)


def test_pauses_are_told_with_their_names(store):
    store.entries.pause(MAIL, "mail: a\nb", late=True)
    store.entries.pause(SLOW, "slow")
    park(store, "a", lane=ALL)
    store.set_ms(NOW_MS + 5)
    store.entries.resume(ALL, 5)
    told = [
        (one.queue, one.task, one.late, one.parked, one.resumed, one.rate)
        for one in store.entries.pauses()
    ]
    assert told == [
        (None, None, False, 1, True, 5.0),
        (None, "slow", False, 0, False, None),
        ("mail: a\nb", None, True, 0, False, None),
    ]
    assert {one.since.timestamp() for one in store.entries.pauses()} == {NOW_MS / 1000}


def test_a_resume_notifies_a_scanner(store):
    park(store, "a").hand_over(asleep=10)
    with store.raw.pubsub() as heard:
        heard.psubscribe("*")
        heard.get_message(timeout=30)
        store.entries.resume(MAIL)
        assert heard.get_message(timeout=30)["channel"].startswith(store.keys["wake"].encode())


# Requests that arrive late, or twice.


def request(store, way):
    options = {"called": "mail", "late": 0} if way == "pause" else {"rate": 0}
    return requests.request(store, way, lane=MAIL, **options)


@pytest.mark.parametrize("way", ["pause", "resume"])
def test_a_request_from_before_a_newer_change_of_the_lane_is_stale(store, way):
    store.entries.pause(MAIL, "mail")
    late = request(store, way)
    store.set_us(NOW_MS * 1000 + 1)
    store.entries.pause(MAIL, "mail")
    if way == "pause":
        store.entries.resume(MAIL)
    before = store.entries.pauses()
    assert late.send() == [b"stale"]
    assert store.entries.pauses() == before
    assert late.anew().send()[0] == b"answer"


def test_another_lane_s_change_overtakes_nothing(store):
    late = request(store, "pause")
    store.set_us(NOW_MS * 1000 + 1)
    store.entries.pause(SLOW, "slow")
    store.entries.resume(ALL)
    assert late.send() == [b"answer", b"done"]


def test_a_repeated_request_is_told_the_same_and_does_nothing(store):
    first = request(store, "pause")
    assert first.send() == [b"answer", b"done"]
    store.set_us(NOW_MS * 1000 + 1)
    store.entries.resume(MAIL)
    assert first.send() == [b"answer", b"done"]
    assert store.entries.pauses() == []


def test_a_refused_entry_that_comes_back_can_be_cancelled_completely(store):
    """Parked between two attempts, and back in `due`, it can still be cancelled completely."""
    store.raw.set("mail", "no list")
    put(store, "a")
    store.steps().hand_over()
    store.set_ms(NOW_MS + 2000)
    shard_steps = park(store, batch_size=1)
    assert state(store, "a") is State.PAUSED
    store.entries.resume(MAIL)
    put(store, "earlier", NOW_MS - 1, queue="other")
    shard_steps.hand_over()
    assert store.places("a") == ["due"]
    assert store.entries.change("a", Removal())[0] is Outcome.DONE
    store.check()
    assert store.raw.hlen(store.keys["claims"]) == 0


# Another program changed these keys.


def test_a_parked_entry_comes_back_though_its_pause_is_gone(store):
    shard_steps = park(store, "a")
    store.raw.delete(store.keys["paused"])
    assert shard_steps.hand_over().handed_over == 0
    assert store.entries.resume(MAIL) is True
    assert drain(shard_steps) == 1


@pytest.mark.parametrize(
    "field",
    [
        b"x",
        b"b:0:1:1.2.3:0:0:0:1:1::mail",
        b"b:0:1:%b:%b:%b:%b:%b:%b:%b-%b-%b,:mail" % ((b"9" * 400,) * 9),
        b"b:0:1:1:%b:%b:%b:%b:%b:-,-,:mail" % ((b"9" * 400,) * 5),
    ],
)
def test_a_parked_entry_comes_back_though_the_field_of_its_lane_is_damaged(store, field):
    shard_steps = park(store, "a")
    store.entries.resume(MAIL, 1)
    store.raw.hset(store.keys["paused"], MAIL, field)
    store.set_ms(NOW_MS + 1000)
    assert drain(shard_steps) == 1
    assert not store.raw.exists(store.keys["paused"])


def test_a_late_policy_that_cannot_be_read_is_not_excused_and_stops_nothing(store):
    shard_steps = park(store, "a", extras=Extras(grace_ms=5, tags=("x",)))
    put(store, "b")
    shard_steps.hand_over()
    text = store.record("a").replace(b"5:0000000000000", b"5x0000000000000")
    store.raw.hset(store.keys["records"], "a", text)
    store.entries.resume(MAIL)
    assert drain(shard_steps) == 2


def test_a_lane_that_was_paused_half_way_does_not_come_back(store):
    """As if Redis stopped the script that paused it again, between its two writes."""
    shard_steps = park(store, "a")
    store.raw.hset(store.keys["paused"], "<", MAIL)

    assert drain(shard_steps) == 0
    assert store.entries.counts().paused == 1
    assert not store.raw.hexists(store.keys["paused"], "<")
    store.entries.resume(MAIL)
    assert drain(shard_steps) == 1
