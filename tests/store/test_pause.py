"""Pauses of lanes: entries are parked until a resume, or treated as if they were."""

from dataclasses import replace
from itertools import chain

import pytest

from celery_delayq.core.clock import When
from celery_delayq.core.store import Listing, Outcome, State, selection
from celery_delayq.core.store.changes import Move, Removal, changed
from celery_delayq.core.store.keys import target_of_member
from celery_delayq.core.store.record import FLAGS, RUN_NOW, Extras, header_for, labels_for, lane_for
from celery_delayq.core.store.selection import Filter
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


# Pauses that no scanner saw: entries that fell due meanwhile are treated as parked ones.


TASK = lane_for(task="t")
GRACE = Extras(grace_ms=500)
SECOND = 1000

each_way = pytest.mark.parametrize("relayed", [False, True], ids=["direct", "relayed"])


def put_many(store, count, **options):
    """In another order than their due times, which are a millisecond apart."""
    for number in range(count - 1, -1, -1):
        put(store, f"a{number:03}", NOW_MS + number, **options)


def look(shard_steps):
    """Run a scanner until nothing is due; returns the ids that left, and the skipped entries."""
    went, skipped = [], []
    while True:
        seen = shard_steps.hand_over(wants=1)
        claimed = shard_steps.claim(1000) if seen.is_past(seen.relay) else None
        went += seen.ids + [one.task_id for one in claimed.entries] if claimed else seen.ids
        skipped += seen.skipped + (claimed.skipped if claimed else [])
        if claimed:
            shard_steps.ack(claimed.entries)
        if not (claimed or seen.is_past(seen.due) or seen.is_past(seen.back)):
            return went, skipped


def looks(store, shard_steps, since_ms, times, every_ms=100):
    """Look again and again; returns the ids that left each time, and all skipped entries."""
    went, skipped = [], []
    for number in range(times):
        store.set_ms(NOW_MS + since_ms + number * every_ms)
        some, others = look(shard_steps)
        went.append(some)
        skipped += others
    return went, skipped


def skipped_in(answer):
    return [task_id for task_id, _ in answer[1]]


def resume(store, rate=None, ms=SECOND):
    """Resume the queue of mail after *ms*."""
    store.set_ms(NOW_MS + ms)
    return store.entries.resume(MAIL, rate)


@pytest.fixture
def paused(store):
    store.entries.pause(MAIL, "mail")


IN_ORDER = [f"a{number:03}" for number in range(50)]

# At a rate.


@each_way
@pytest.mark.usefixtures("paused")
def test_at_a_rate_what_no_scanner_has_met_comes_back_in_due_order(store, relayed):
    put_many(store, 50, relayed=relayed)
    resume(store, 20)
    went, _ = looks(store, store.steps(batch_size=7), SECOND, 26)
    assert [*chain(*went)] == IN_ORDER
    assert [len(some) for some in went] == [2] * 25 + [0]
    assert store.entries.pauses() == []
    store.check()


@each_way
@pytest.mark.usefixtures("paused")
def test_met_and_unmet_entries_come_back_in_one_order(store, relayed):
    put_many(store, 5, relayed=relayed)
    shard_steps = store.steps()
    store.set_ms(NOW_MS + SECOND)
    look(shard_steps)
    for number in range(5):
        put(store, f"b{number}", NOW_MS + SECOND + number, relayed=not relayed)
    resume(store, 20, 2 * SECOND)
    went, _ = looks(store, shard_steps, 2 * SECOND, 5)
    # In one look, direct entries leave before relayed ones.
    assert [sorted(some) for some in went] == [
        ["a000", "a001"],
        ["a002", "a003"],
        ["a004", "b0"],
        ["b1", "b2"],
        ["b3", "b4"],
    ]
    assert store.entries.pauses() == []
    store.check()


@each_way
@pytest.mark.usefixtures("paused")
def test_unmet_entries_take_turns_with_parked_entries_that_are_due_later(store, relayed):
    for number in range(5):
        put(store, f"met{number}", NOW_MS + 500 + number, relayed=relayed)
    shard_steps = store.steps()
    store.set_ms(NOW_MS + SECOND)
    look(shard_steps)
    for number in range(5):
        put(store, f"earlier{number}", NOW_MS + number, relayed=relayed)
    resume(store, 20)
    went, _ = looks(store, shard_steps, SECOND, 5)
    assert [len(some) for some in went] == [2] * 5
    assert len({one for some in went for one in some}) == 10
    assert store.entries.pauses() == []
    store.check()


@pytest.mark.usefixtures("paused")
def test_a_turn_that_one_claim_took_is_not_there_for_the_next_one(store):
    put_many(store, 5, relayed=True)
    shard_steps = store.steps()
    store.set_ms(NOW_MS + SECOND)
    look(shard_steps)
    for number in range(3):
        put(store, f"earlier{number}", NOW_MS - 1, relayed=True)
    store.entries.resume(MAIL, 20)
    shard_steps.hand_over()
    assert [len(shard_steps.claim(1).entries) for _ in range(4)] == [1, 1, 0, 0]


@each_way
@pytest.mark.usefixtures("paused")
def test_an_entry_that_falls_due_after_the_resume_and_another_queue_do_not_wait_for_it(
    store, relayed
):
    put_many(store, 30, relayed=relayed)
    put(store, "later", NOW_MS + SECOND + 1, relayed=relayed)
    put(store, "other", NOW_MS + 3, relayed=relayed, queue="other")
    resume(store, 0.01)
    put(store, "new", NOW_MS - 1, relayed=relayed)  # due before, and scheduled after it
    store.set_ms(NOW_MS + SECOND + 1)
    went, _ = look(store.steps())
    assert sorted(went) == ["a000", "later", "new", "other"]
    store.check()


@pytest.mark.parametrize("is_met", [False, True], ids=["unmet", "met"])
def test_two_lanes_that_come_back_are_both_kept_to(store, is_met):
    for lane, name in ((MAIL, "mail"), (TASK, "t")):
        store.entries.pause(lane, name)
    put_many(store, 40)
    shard_steps = store.steps()
    store.set_ms(NOW_MS + SECOND)
    if is_met:
        look(shard_steps)
    store.entries.resume(TASK, 10)
    resume(store, 20)
    went, _ = looks(store, shard_steps, SECOND, 40)
    assert went == [[one] for one in IN_ORDER[:40]]
    store.check()


@pytest.mark.usefixtures("paused")
def test_a_rate_that_is_given_anew_holds_for_no_more_than_before(store):
    put_many(store, 30)
    resume(store, 1)
    put(store, "later", NOW_MS + 2 * SECOND)
    assert resume(store, 10, 3 * SECOND)
    assert sorted(look(store.steps())[0]) == ["a000", "later"]


@pytest.mark.usefixtures("paused")
def test_an_entry_that_came_back_and_is_paused_anew_waits_for_the_next_resume(store):
    put_many(store, 30, relayed=True)
    resume(store)
    shard_steps = store.steps()
    shard_steps.hand_over()  # without a broker
    store.entries.pause(MAIL, "mail")
    resume(store, 1, 2 * SECOND)
    assert look(shard_steps)[0] == ["a000"]
    store.check()


@pytest.mark.usefixtures("paused")
def test_an_entry_that_comes_back_and_just_fell_due_leaves_behind_older_ones(store):
    for number in range(20):
        put(store, f"old{number:02}", NOW_MS - 1000 + number)
    for number in range(4):
        put(store, f"young{number}", NOW_MS + number)
    resume(store, 20, 5)
    shard_steps = store.steps(batch_size=8)
    assert look(shard_steps)[0] == ["old00", "old01"]


@pytest.mark.usefixtures("paused")
def test_a_lane_is_forgotten_when_nothing_that_is_unmet_was_due_before(store):
    put(store, "a", relayed=True)
    put(store, "later", NOW_MS + 2 * SECOND)
    assert resume(store, 1) is True
    shard_steps = store.steps()
    shard_steps.hand_over()
    assert [one.resumed for one in store.entries.pauses()] == [True]
    look(shard_steps)
    assert store.entries.pauses() == []
    assert store.entries.resume(MAIL) is False


@pytest.mark.usefixtures("paused")
def test_where_nothing_is_due_a_lane_is_forgotten_at_once(store):
    put(store, "later", NOW_MS + 2 * SECOND)
    assert resume(store, 1) is True
    assert store.entries.pauses() == []
    assert not store.raw.exists(store.keys["paused"])


# Lateness.


@each_way
@pytest.mark.parametrize(("rate", "late"), [(None, False), (20.0, False), (None, True)])
def test_a_pause_that_no_scanner_has_seen_is_lateness_only_if_that_was_asked_for(
    store, relayed, rate, late
):
    store.entries.pause(MAIL, "mail", late=late)
    put_many(store, 10, relayed=relayed, extras=GRACE)
    resume(store, rate, 10 * SECOND)
    went, skipped = looks(store, store.steps(), 10 * SECOND, 10)
    assert [*chain(*went)] == ([] if late else IN_ORDER[:10])
    assert len(went[0]) == (0 if late else 2 if rate else 10)
    assert len(skipped) == (10 if late else 0)
    store.check()


@each_way
@pytest.mark.parametrize("is_met", [False, True], ids=["unmet", "met"])
def test_an_entry_that_was_too_late_before_the_pause_stays_too_late(store, relayed, is_met):
    put(store, "late", NOW_MS, relayed=relayed, extras=GRACE)
    put(store, "in time", NOW_MS + 1, relayed=relayed, extras=GRACE)
    store.set_ms(NOW_MS + 501)
    store.entries.pause(MAIL, "mail")
    shard_steps = store.steps()
    if is_met:
        look(shard_steps)
    resume(store, None, 10 * SECOND)
    assert look(shard_steps) == (["in time"], [("late", "skipped: 10 s late")])
    store.check()


def test_pauses_of_several_lanes_are_joined(store):
    """Successive pauses, with a gap that is shorter than the grace period, and a longer one."""
    for number, (lane, from_ms, to_ms) in enumerate(
        [(MAIL, 0, 1000), (TASK, 1400, 3000), (ALL, 2500, 5000)]
    ):
        store.set_ms(NOW_MS + from_ms)
        store.entries.pause(lane, str(number))
        put(store, f"a{number}", NOW_MS + from_ms, extras=GRACE)
        put(store, f"other{number}", NOW_MS + from_ms, queue="other", extras=GRACE)
        if number == 2:
            store.set_ms(NOW_MS + 3000)
            store.entries.resume(TASK)
        if number != 1:
            store.set_ms(NOW_MS + to_ms)
            store.entries.resume(lane)
    answer = look(store.steps())
    assert sorted(answer[0]) == ["a0", "a1", "a2", "other1", "other2"]
    assert skipped_in(answer) == ["other0"]


def test_a_lane_remembers_eight_pauses_before_the_last_one(store):
    """Each of the last pauses counts as lateness, and so do the gaps between them."""
    for number in range(12):
        late = number == 11
        store.entries.pause(MAIL, "mail", late=late)
        put(store, f"a{number:02}", NOW_MS + 10 * number * SECOND, extras=GRACE)
        store.set_ms(NOW_MS + (10 * number + 1) * SECOND)
        store.entries.resume(MAIL)
        store.set_ms(NOW_MS + 10 * (number + 1) * SECOND)
    field = store.raw.hget(store.keys["paused"], MAIL)
    assert field.count(b",") == 8
    # Entries that were excused until the last pause are late by the length of it.
    assert len(skipped_in(look(store.steps()))) == 12
    assert not store.raw.exists(store.keys["paused"])


@pytest.mark.usefixtures("paused")
def test_an_earlier_pause_excuses_also_where_a_later_one_counts(store):
    put(store, "a", NOW_MS, extras=GRACE)
    resume(store, None, 10 * SECOND)
    store.entries.pause(MAIL, "mail", late=True)
    resume(store, None, 10 * SECOND + 400)
    assert look(store.steps())[0] == ["a"]


@pytest.mark.usefixtures("paused")
def test_an_excused_entry_stays_excused_when_the_pause_is_forgotten(store):
    """It is refused and retried: by then there is no record of the pause."""
    store.raw.set("mail", "no list")
    put(store, "a", extras=Extras(grace_ms=5000))
    resume(store, None, 10 * SECOND)
    shard_steps = store.steps()
    look(shard_steps)
    assert (store.places("a"), store.entries.pauses()) == (["refused"], [])
    store.raw.delete("mail")
    store.set_ms(NOW_MS + 12 * SECOND)
    assert look(shard_steps)[0] == ["a"]


@pytest.mark.usefixtures("paused")
def test_an_excused_entry_stays_excused_while_its_broker_is_away(store):
    put(store, "a", relayed=True, extras=Extras(grace_ms=5000))
    resume(store, None, 10 * SECOND)
    shard_steps = store.steps()
    claimed = shard_steps.claim(9).entries
    shard_steps.hand_over()
    assert store.entries.pauses() == []
    shard_steps.nack("unsent", claimed)
    store.set_ms(NOW_MS + 14 * SECOND)
    assert look(shard_steps)[0] == ["a"]


@pytest.mark.parametrize(("ms", "is_late"), [(500, False), (501, True)])
def test_an_excused_entry_that_another_pause_parks_is_late_by_that_pause_alone(store, ms, is_late):
    for lane, late in ((MAIL, False), (TASK, True)):
        store.entries.pause(lane, "x", late=late)
    put(store, "a", extras=GRACE)
    resume(store, None, 10 * SECOND)
    shard_steps = store.steps()
    look(shard_steps)
    assert store.places("a") == ["parked"]
    store.set_ms(NOW_MS + 10 * SECOND + ms)
    store.entries.resume(TASK)
    assert skipped_in(look(shard_steps)) == ["a"] * is_late


def test_waiting_for_its_turn_in_a_second_lane_is_no_lateness(store):
    for lane, name in ((MAIL, "mail"), (TASK, "t")):
        store.entries.pause(lane, name)
    put_many(store, 3, extras=GRACE)
    shard_steps = store.steps()
    look(shard_steps)
    store.set_ms(NOW_MS + 10 * SECOND)
    store.entries.resume(TASK, 0.1)
    store.set_ms(NOW_MS + 11 * SECOND)
    look(shard_steps)
    store.entries.resume(MAIL)
    went, skipped = looks(store, shard_steps, 11 * SECOND, 10, 5 * SECOND)
    assert ([*chain(*went)], skipped) == (IN_ORDER[:3], [])


# One definition.


def told_in(store, task_id="a"):
    """An entry as each way of reading shows it; they have to agree."""
    states = {
        store.entries.state(task_id),
        store.entries.find(task_id).state,
        *(one.state for one in store.entries.waiting(Listing(0, FAR_MS)) if one.task_id == task_id),
    }
    for state in (State.PAUSED, State.SCHEDULED):
        chosen = Filter(states=(state,))
        members = [member for page in store.pages(chosen) for member in page]
        if any(
            entry.task_id == task_id for _, entry in selection.read(store.shard, chosen, members)
        ):
            states.add(state)
    counts = store.entries.counts()
    states.add(State.PAUSED if counts.paused else State.SCHEDULED)
    [state] = states
    tallies, _ = store.entries.tallies(100)
    assert sum(one.overdue for one in tallies) == counts.overdue
    return state, (counts.scheduled, counts.overdue, counts.paused)


@each_way
@pytest.mark.parametrize("lane", [ALL, MAIL, TASK], ids=["all", "queue", "task"])
@pytest.mark.parametrize("is_met", [False, True], ids=["unmet", "met"])
def test_all_tell_the_same_of_what_is_paused(store, relayed, lane, is_met):
    def seen():
        if is_met:
            look(shard_steps)
        return told_in(store)

    shard_steps = store.steps()
    store.entries.pause(lane, "x")
    put(store, "a", NOW_MS + 1, relayed=relayed)
    put(store, "b", NOW_MS + 1, relayed=relayed)
    assert seen() == (State.SCHEDULED, (2, 0, 0))
    store.set_ms(NOW_MS + 1)
    assert seen() == (State.PAUSED, (0, 0, 2))
    waits = "parked" if is_met else "relay" if relayed else "due"
    assert [store.places(one) for one in "ab"] == [[waits]] * 2
    assert [one.parked for one in store.entries.pauses()] == [2]
    assert store.entries.counts().oldest_overdue_ms is None
    store.entries.resume(lane, 0.1)
    assert told_in(store) == (State.PAUSED, (0, 0, 2))
    assert [(one.parked, one.resumed) for one in store.entries.pauses()] == [(2, True)]
    store.entries.resume(lane)
    assert told_in(store) == (State.SCHEDULED, (2, 2, 0))
    assert [(one.parked, one.resumed) for one in store.entries.pauses()] == [(2, True)]
    assert store.entries.counts().oldest_overdue_ms == NOW_MS + 1
    assert store.entries.counts().next_due_ms == NOW_MS + 1


@each_way
@pytest.mark.usefixtures("paused")
def test_an_entry_that_comes_back_from_one_pause_and_is_in_another_is_paused(store, relayed):
    for task_id in "ab":
        put(store, task_id, relayed=relayed)
    look(store.steps())
    store.entries.pause(TASK, "t")
    assert told_in(store) == (State.PAUSED, (0, 0, 2))
    store.entries.resume(MAIL)
    assert told_in(store) == (State.PAUSED, (0, 0, 2))
    store.entries.resume(TASK)
    assert told_in(store) == (State.SCHEDULED, (2, 2, 0))


def test_a_refused_entry_is_paused_when_its_queue_is(store):
    store.raw.set("mail", "no list")
    put(store, "a")
    store.steps().hand_over()
    assert told_in(store) == (State.SCHEDULED, (1, 1, 0))
    store.entries.pause(MAIL, "mail")
    assert told_in(store) == (State.PAUSED, (0, 0, 1))


@pytest.mark.usefixtures("paused")
def test_an_entry_that_runs_now_is_not_paused(store):
    put(store, "a", FAR_MS)
    store.entries.change("a", Move(mode="now"))
    assert told_in(store) == (State.SCHEDULED, (1, 1, 0))
    assert store.entries.find("a").facts.paused_by == ""


@each_way
def test_a_selection_of_the_paused_cancels_what_no_scanner_has_met(store, relayed):
    store.entries.pause(MAIL, "mail")
    put(store, "a", relayed=relayed)
    put(store, "b", relayed=relayed, queue="other")
    put(store, "c", FAR_MS, relayed=relayed)
    chosen = Filter(states=(State.PAUSED,))
    targets = [target_of_member(member) for page in store.pages(chosen) for member in page]
    pages = changed(store.shard, Removal(chosen=chosen.text), targets)
    assert [change.outcome for page in pages for change in page].count(Outcome.DONE) == 1
    assert [store.entries.state(one) for one in "abc"] == [None, *[State.SCHEDULED] * 2]


def test_before_it_is_due_an_entry_says_what_of_it_is_paused(store):
    put(store, "a", FAR_MS)
    put(store, "b", FAR_MS, queue="other")
    assert store.entries.find("a").facts.paused_by == ""
    store.entries.pause(MAIL, "mail")
    store.entries.pause(TASK, "t")
    assert store.entries.find("a").facts.paused_by == "qt"
    assert [one.facts.paused_by for one in store.entries.waiting(Listing(0, FAR_MS + 1))] == [
        "qt",
        "t",
    ]
    store.entries.pause(ALL, "")
    store.entries.resume(MAIL)
    chosen = Filter(queues=("mail",))
    [members] = store.pages(chosen)
    [(_, entry)] = selection.read(store.shard, chosen, members)
    assert (entry.state, entry.facts.paused_by) == (State.SCHEDULED, "*t")


def test_a_long_backlog_of_the_paused_is_found_whole(store):
    """More entries than one step of the search reads, all due at the same time."""
    ids = store.flood(1300)
    store.entries.pause(ALL, "")
    chosen = Filter(states=(State.PAUSED,))
    found = [m[6:].decode() for page in store.pages(chosen) for m in page]
    assert sorted(found) == sorted(ids)
