"""A list that cannot be pushed to: its entries wait, longer each time; all others leave."""

import pytest

from celery_delayq.core.clock import When
from celery_delayq.core.store import Filter, Listing, Outcome, State, selection
from celery_delayq.core.store.changes import Removal
from celery_delayq.core.store.record import FLAGS, HAS_KEY, LAST_MS, Extras
from celery_delayq.errors import StoreUnavailable
from tests.store import requests
from tests.store.support import CLOCK, FAR_MS, NOW_MS, Store

# After the last one it is dead.
WAITS_S = [2, 4, 8, 16, 32, 64, 128]


@pytest.fixture
def spoilt(store):
    """A store whose list `taken` refuses every push."""
    store.raw.set("taken", "by somebody")
    return store


@pytest.fixture
def refusing(spoilt, shard_steps):
    """The answer of the hand-over that left the entry `bad` refused."""
    spoilt.schedule("bad", to="taken", extras=Extras(tags=("x",)))
    return shard_steps.hand_over()


def refuse_again(store):
    """Let the wait be over, and hand over once more."""
    store.set_ms(store.score("refused", "bad"))
    assert store.steps().hand_over().handed_over == 0


@pytest.mark.parametrize("share", [False, True])
def test_beside_a_refused_entry_which_waits_others_go(spoilt, share):
    for task_id, queue in (("a", "celery"), ("bad", "taken"), ("b", "celery")):
        spoilt.schedule(task_id, to=queue, share=share)
    seen = spoilt.steps().hand_over()
    assert (seen.handed_over, seen.dead) == (2, [])
    [(reason, count)] = seen.refused
    assert count == 1
    assert reason.startswith("taken: ")
    assert "WRONGTYPE" in reason or "wrong kind" in reason
    assert spoilt.arrived() == ["a", "b"]
    assert spoilt.raw.get("taken") == b"by somebody"
    assert spoilt.raw.hkeys(spoilt.keys["tombstones"]) == [b"a", b"b"]
    entry = spoilt.entries.find("bad")
    assert (entry.state, entry.due_ms) == (State.SCHEDULED, NOW_MS)
    spoilt.check()


def test_each_wait_of_a_refused_entry_is_twice_as_long_and_after_the_limit_it_is_dead(
    spoilt, shard_steps
):
    spoilt.schedule("bad", to="taken")
    waits, now = [], NOW_MS
    while not (seen := shard_steps.hand_over()).dead:
        again = spoilt.score("refused", "bad")
        waits.append((again - now) // 1000)
        spoilt.set_ms(again - 1)
        assert shard_steps.hand_over().refused == []
        now = again
        spoilt.set_ms(now)
    assert waits == WAITS_S
    entry = spoilt.entries.find("bad")
    assert entry.facts.error.startswith("taken: ")
    assert (seen.dead, seen.refused) == ([("bad", entry.facts.error)], [])
    assert (entry.facts.attempts, entry.facts.since_ms) == (8, NOW_MS + 1000 * sum(WAITS_S))
    assert spoilt.places("bad") == ["dead"]
    spoilt.check()


@pytest.mark.servers
def test_an_entry_without_the_right_to_its_list_is_never_dead_and_waits_longer_each_time(
    each_redis,
):
    """For at most five minutes."""
    store = Store(each_redis)
    rights = ("ACL", "SETUSER", "default")
    try:
        store.raw.execute_command(*rights, "resetkeys", "~good", f"~{CLOCK}", "~{delayq:*")
        store.schedule("bad", to="taken")
        store.schedule("good", to="good")
        shard_steps, waits, now = store.steps(), [], NOW_MS
        for _ in range(len(WAITS_S) + 4):
            seen = shard_steps.hand_over()
            assert (len(seen.refused), seen.dead) == (1, [])
            again = store.score("refused", "bad")
            waits.append((again - now) // 1000)
            now = again
            store.set_ms(now)
        assert waits == [*WAITS_S, 256, 300, 300, 300]
    finally:
        store.raw.execute_command(*rights, "allkeys")
    assert shard_steps.hand_over().handed_over == 1
    assert store.arrived("taken") == ["bad"]
    assert store.arrived("good") == ["good"]
    store.check()
    store.close()


@pytest.mark.servers
@pytest.mark.parametrize("relayed", [False, True], ids=["direct", "relayed"])
def test_without_the_replicas_that_redis_wants_a_due_entry_waits_and_is_to_blame_for_nothing(
    each_redis, relayed
):
    store = Store(each_redis)
    (store.schedule_relayed if relayed else store.schedule)("a")
    before, shard_steps = store.snapshot(), store.steps()
    take = (lambda: shard_steps.claim(1)) if relayed else shard_steps.hand_over
    store.raw.config_set("min-replicas-to-write", 1)
    try:
        for _ in range(len(WAITS_S) + 1):
            with pytest.raises(StoreUnavailable, match="NOREPLICAS"):
                take()
    finally:
        store.raw.config_set("min-replicas-to-write", 0)
    assert store.snapshot() == before
    take()
    assert store.places("a") == (["leased"] if relayed else [])
    store.close()


def test_why_how_often_and_when_again_an_entry_is_refused_is_known(spoilt, refusing):
    [(reason, _)] = refusing.refused
    entry = spoilt.entries.find("bad")
    assert (entry.facts.error, entry.facts.attempts, entry.facts.next_try_ms) == (
        reason,
        1,
        NOW_MS + 2000,
    )
    assert entry.facts.since_ms is None
    counts = spoilt.entries.counts()
    assert (counts.scheduled, counts.overdue, counts.refused) == (1, 1, 1)


@pytest.mark.usefixtures("refusing")
def test_a_refused_entry_goes_once_its_list_can_be_pushed_to_and_leaves_nothing(
    spoilt, shard_steps
):
    refuse_again(spoilt)
    spoilt.raw.delete("taken")
    spoilt.set_ms(NOW_MS + 6000)
    seen = shard_steps.hand_over()
    assert (seen.handed_over, seen.back) == (1, None)
    assert spoilt.arrived("taken") == ["bad"]
    assert not spoilt.raw.exists(spoilt.keys["claims"], spoilt.keys["errors"])
    spoilt.check()


def test_a_thousand_of_one_list_hold_up_nothing_and_all_wait(spoilt):
    for number in range(1000):
        spoilt.schedule(f"bad{number}", to="taken", share=True)
    spoilt.schedule("good")
    shard_steps = spoilt.steps(batch_size=200)
    seen = [shard_steps.hand_over() for _ in range(6)]
    assert [count for one in seen for _, count in one.refused] == [200] * 5
    assert [one.handed_over for one in seen] == [0, 0, 0, 0, 0, 1]
    counts = spoilt.entries.counts()
    assert (counts.scheduled, counts.dead) == (1000, 0)
    assert not seen[-1].is_past(seen[-1].due)
    spoilt.check()


@pytest.mark.parametrize("age_ms", [0, 5000], ids=["fresh", "overdue"])
def test_entries_behind_a_refused_one_stay_when_a_batch_is_full(spoilt, age_ms):
    """A batch's entries are removed by rank, which a refused entry no longer has."""
    for number in range(30):
        spoilt.schedule(f"a{number:02}", to=("celery", "taken")[number % 2])
    spoilt.schedule("new", NOW_MS + age_ms)
    spoilt.set_ms(NOW_MS + age_ms)
    shard_steps = spoilt.steps(batch_size=8)
    while (seen := shard_steps.hand_over()).is_past(seen.due):
        spoilt.check()
    assert sorted(spoilt.arrived()) == sorted(["new", *(f"a{n:02}" for n in range(0, 30, 2))])
    assert spoilt.entries.counts().scheduled == 15
    spoilt.check()


def test_a_refused_entry_that_is_due_again_in_a_full_batch_is_cancelled_and_leaves_nothing(spoilt):
    """It is in `due` again, and there is a record of its attempt."""
    spoilt.schedule("bad", to="taken")
    shard_steps = spoilt.steps(batch_size=1)
    shard_steps.hand_over()
    spoilt.schedule("earlier", NOW_MS - 1)
    spoilt.set_ms(NOW_MS + 2000)
    shard_steps.hand_over()
    assert spoilt.places("bad") == ["due"]
    assert spoilt.entries.change("bad", Removal())[0] is Outcome.DONE
    assert not spoilt.raw.exists(spoilt.keys["claims"], spoilt.keys["errors"])
    spoilt.check()


def test_a_refused_entry_is_tried_again_in_its_place_among_the_due(spoilt, shard_steps):
    spoilt.schedule("bad", NOW_MS - 5, to="taken")
    shard_steps.hand_over()
    spoilt.raw.delete("taken")
    spoilt.schedule("earlier", NOW_MS - 6, to="taken")
    spoilt.schedule("later", NOW_MS - 4, to="taken")
    spoilt.set_ms(NOW_MS + 2000)
    shard_steps.hand_over()
    assert spoilt.arrived("taken") == ["earlier", "bad", "later"]


@pytest.mark.usefixtures("refusing")
@pytest.mark.parametrize("dead", [False, True])
def test_the_refusals_of_an_entry_given_another_time_are_forgotten(spoilt, shard_steps, dead):
    while dead and not spoilt.score("dead", "bad"):
        refuse_again(spoilt)
    assert spoilt.reschedule("bad", When("at", FAR_MS)) == (Outcome.DONE, FAR_MS)
    assert not spoilt.raw.exists(spoilt.keys["claims"])
    spoilt.set_ms(FAR_MS)
    shard_steps.hand_over()
    assert spoilt.score("refused", "bad") == FAR_MS + 2000
    spoilt.check()


def test_the_answer_to_an_earlier_call_for_the_same_id_stays(spoilt):
    """A call whose reply was lost may be repeated after all that."""
    call = requests.schedule(spoilt, "bad", to="taken", when=When("at", NOW_MS))
    first = call.send()[:2]
    spoilt.entries.change("bad", Removal())
    spoilt.schedule("bad", to="taken")
    spoilt.steps().hand_over()
    before = spoilt.snapshot()
    assert call.send()[:2] == first
    assert spoilt.snapshot() == before


# Another program changed these keys.


@pytest.mark.usefixtures("refusing")
@pytest.mark.parametrize("score", ["-inf", -1])
def test_a_score_below_0_holds_up_nothing_that_is_to_be_tried_again(spoilt, shard_steps, score):
    spoilt.raw.delete("taken")
    spoilt.raw.zadd(spoilt.keys["refused"], {b"123456somebody": score})
    spoilt.set_ms(NOW_MS + 2000)
    assert shard_steps.hand_over().handed_over == 1


@pytest.mark.usefixtures("refusing")
@pytest.mark.parametrize("score", ["inf", 2**53])
def test_a_score_that_is_no_time_is_shown_as_the_last_that_a_calendar_has(spoilt, score):
    (member,) = spoilt.raw.zrange(spoilt.keys["refused"], 0, -1)
    spoilt.raw.zadd(spoilt.keys["refused"], {member: score})
    (listed,) = spoilt.entries.waiting(Listing(0, FAR_MS))
    ((_, chosen),) = selection.read(spoilt.shard, Filter(), [member])
    assert {listed.facts.next_try_ms, chosen.facts.next_try_ms} == {LAST_MS}


@pytest.mark.usefixtures("refusing")
def test_flags_that_say_that_it_has_a_key_stop_nothing_that_is_tried_again(spoilt, shard_steps):
    spoilt.schedule("good", NOW_MS + 3000)
    text, at = spoilt.record("bad"), len(b"1L5:taken") + FLAGS
    changed = text[:at] + bytes([text[at] | HAS_KEY]) + text[at + 1 :]
    spoilt.raw.hset(spoilt.keys["records"], "bad", changed)
    spoilt.set_ms(NOW_MS + 3000)
    assert shard_steps.hand_over().handed_over == 1
    assert spoilt.arrived() == ["good"]
