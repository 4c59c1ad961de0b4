"""What a check found is mended, and then the entry does what it should; what fits is not touched."""

from dataclasses import replace

import pytest

from celery_delayq.clock import When
from celery_delayq.store import Entries, Outcome, State
from celery_delayq.store.ids import target_of_key
from celery_delayq.store.misfits import COUNTED, KINDS
from tests.operations.table import prepare
from tests.store.support import FAR_MS, NOW_MS
from tests.store.test_check import ALSO, EXTRAS, SPOIL, key, member_in

TOLD = {kind for kind, one in KINDS.items() if not one.repair}


def kinds(store):
    return {one.kind for one in store.entries.check()}


def kept(store):
    """All that is kept, but for when who is up next."""
    timer = key(store, "timer").encode()
    return {name: value for name, value in store.snapshot().items() if name != timer}


def repair(store, *, of=None):
    """Mend what is found; what became of each, as (kind, id) -> what."""
    found = [one for one in store.entries.check() if of is None or one.kind in of]
    became = [one for some in store.entries.repair(found) for one in some]
    assert len(became) == len(found)
    return {(one.finding.kind, one.finding.id): one.what for one in became}


def drain(store):
    """Let time pass, and everything go that can: (id, whether marked) of each."""
    store.set_ms(FAR_MS + 1)
    engine, gone = store.engine(), []
    for _ in range(3):
        engine.reclaim()
        while (seen := engine.hand_over()).handed_over or seen.is_past(seen.due):
            pass
        for entry in engine.claim(50)[0]:
            gone.append((entry.task_id, bool(entry.uncertain)))
            engine.ack([entry])
    gone += [(task_id, False) for task_id in store.arrived()]
    store.raw.delete("celery")
    return sorted(gone)


def test_it_is_said_of_each_kind_what_repair_does_or_that_it_is_only_told():
    assert {"unreadable_record", "template_gone"} == TOLD


@pytest.mark.parametrize("kind", SPOIL)
def test_what_was_found_is_found_no_more(store, kind):
    prepare(store)
    store.schedule("tagged", FAR_MS, extras=EXTRAS)
    SPOIL[kind](store)
    before = store.contents()
    became = repair(store)
    if kind in TOLD:
        assert {what for (one, _), what in became.items() if one == kind} == {"left"}
        assert kinds(store) == TOLD & kinds(store)
        records = store.keys["records"].encode()
        assert store.contents()[records] == before[records]
    else:
        assert kinds(store) == set()
    assert set(repair(store).values()) <= {"left"}


@pytest.mark.parametrize("kind", ALSO)
def test_so_is_what_nearly_fits(store, kind):
    store.schedule("tagged", FAR_MS, extras=EXTRAS)
    store.schedule("plain", FAR_MS)
    before = store.contents()
    ALSO[kind](store)
    repair(store)
    assert store.contents() == before
    store.check()


@pytest.mark.parametrize("kind", sorted(set(SPOIL) - set(COUNTED)))
def test_what_is_so_no_more_is_not_touched(store, kind):
    """A finding is kept, and what it is about was put right, or is gone, before it is mended."""
    prepare(store)
    store.schedule("tagged", FAR_MS, extras=EXTRAS)
    before, whole = kept(store), store.contents(all_keys=True)
    SPOIL[kind](store)
    found = [one for one in store.entries.check() if one.kind == kind and one.repair]
    put(store, whole)
    assert kept(store) == before
    assert kinds(store) == set()
    became = [one.what for some in store.entries.repair(found) for one in some]
    assert became == ["gone"] * len(found)
    assert kept(store) == before
    store.raw.flushdb()
    store.set_ms(NOW_MS)
    became = [one.what for some in store.entries.repair(found) for one in some]
    assert became == ["gone"] * len(found)
    assert kept(store) == {}


def put(store, contents):
    store.raw.flushdb()
    for name, value in contents.items():
        if isinstance(value, dict):
            store.raw.hset(name, mapping=value)
        elif isinstance(value, bytes):
            store.raw.set(name, value)
        else:
            store.raw.zadd(name, dict(value))


# Where a place was lost.


@pytest.mark.parametrize(("put_it", "index"), [("schedule", "due"), ("schedule_relayed", "relay")])
def test_what_lost_its_place_before_it_was_due_waits_again_for_its_due_time(store, put_it, index):
    getattr(store, put_it)("a", FAR_MS, extras=EXTRAS)
    before = store.contents()
    store.raw.delete(key(store, index), key(store, "holders"))
    assert repair(store)["record_without_place", "a"] == "back"
    assert store.contents() == before
    store.check()
    assert drain(store) == [("a", False)]


def test_it_can_be_cancelled_and_stays_cancelled(store):
    store.schedule("a", FAR_MS, extras=EXTRAS)
    store.raw.delete(key(store, "due"))
    found = list(store.entries.check())
    assert store.entries.cancel("a")[0] is Outcome.DONE
    assert [one.what for some in store.entries.repair(found) for one in some] == ["gone"]
    assert drain(store) == []
    store.set_ms(NOW_MS)
    store.schedule("a", FAR_MS, extras=EXTRAS)
    store.raw.delete(key(store, "due"))
    repair(store)
    assert store.entries.cancel(target_of_key("k1"))[0] is Outcome.DONE
    assert drain(store) == []
    store.check()


def test_a_scanner_is_told_of_what_waits_again(store):
    store.schedule("a", NOW_MS)
    store.raw.delete(key(store, "due"))
    store.engine().hand_over(asleep=5.0)
    with store.raw.pubsub() as ears:
        ears.psubscribe("*wake*")
        assert ears.get_message(timeout=5)["type"] == "psubscribe"
        assert repair(store) == {("record_without_place", "a"): "back"}
        assert ears.get_message(timeout=5)["type"] == "pmessage"


def test_what_a_list_should_have_had_by_now_goes_once(store):
    store.schedule("a", NOW_MS)
    store.raw.delete(key(store, "due"))
    repair(store)
    assert drain(store) == [("a", False)]


def test_what_was_to_be_published_by_now_goes_marked(store):
    store.schedule_relayed("a", NOW_MS)
    store.raw.delete(key(store, "relay"))
    repair(store)
    assert drain(store) == [("a", True)]


def test_what_was_tried_and_did_not_leave_is_not_marked(store):
    """Of its claim it is known that no attempt is uncertain."""
    store.schedule_relayed("a", NOW_MS)
    engine = store.engine()
    engine.nack("refused", engine.claim(1)[0], wait=1, reason="NO_ROUTE")
    store.raw.hdel(key(store, "errors"), "a")
    store.raw.delete(key(store, "refused"))
    assert repair(store) == {("record_without_place", "a"): "back"}
    assert drain(store) == [("a", False)]


def test_what_is_being_published_goes_on_and_its_lease_is_as_it_was(store):
    store.schedule_relayed("a", NOW_MS)
    engine = store.engine(lease=30)
    claimed, *_ = engine.claim(1)
    before = kept(store)
    store.raw.delete(key(store, "leased"))
    store.set_ms(NOW_MS + 1000)
    assert repair(store) == {("record_without_place", "a"): "done"}
    assert kept(store) == before
    assert store.entries.cancel("a")[0] is Outcome.IN_FLIGHT
    assert engine.ack(claimed) == 1
    assert drain(store) == []
    store.check()


def test_and_if_its_scanner_is_dead_it_goes_marked_when_its_lease_ends(store):
    store.schedule_relayed("a", NOW_MS)
    store.engine(lease=30).claim(1)
    store.raw.delete(key(store, "leased"))
    repair(store)
    assert drain(store) == [("a", True)]


def test_a_claim_of_before_the_clock_was_set_back_holds_no_longer_than_a_lease(store):
    store.schedule_relayed("a", NOW_MS)
    store.engine(lease=30).claim(1)
    store.raw.delete(key(store, "leased"))
    store.set_ms(NOW_MS - 3_600_000)
    repair(store)
    assert store.score("leased", "a") == NOW_MS - 3_600_000 + 30_000


@pytest.mark.parametrize("index", ["dead", "refused"])
def test_what_had_failed_is_dead_with_its_reason(store, index):
    store.schedule_relayed("a", NOW_MS)
    engine = store.engine()
    engine.nack(index, engine.claim(1)[0], wait=1, reason="NO_ROUTE")
    store.raw.delete(key(store, index))
    assert repair(store) == {("record_without_place", "a"): "dead"}
    found = store.entries.find("a")
    assert (found.state, found.reason) == (State.DEAD, "NO_ROUTE")
    assert drain(store) == []
    assert store.entries.reschedule("a", When("at", 0), mode="retry")[0] is Outcome.DONE
    assert drain(store) == [("a", False)]


def test_what_may_have_left_is_dead_and_says_so(store):
    store.schedule("a", NOW_MS)
    record = store.record("a")
    store.engine().hand_over()
    store.raw.hset(key(store, "records"), "a", record)
    found = list(store.entries.check())
    (repaired,) = (one for some in store.entries.repair(found) for one in some)
    says = "it had lost its place, and may have left"
    assert (repaired.what, repaired.reason) == ("dead", says)
    assert store.entries.find("a").reason == says
    assert drain(store) == [("a", False)]  # the one that had left


def test_what_was_scheduled_anew_since_it_left_waits_again(store):
    store.schedule("a", NOW_MS)
    store.engine().hand_over()
    store.raw.delete("celery")
    store.set_ms(NOW_MS + 1)
    store.schedule("a", FAR_MS)
    store.raw.delete(key(store, "due"))
    assert repair(store) == {("record_without_place", "a"): "back"}
    assert drain(store) == [("a", False)]


def test_the_history_tells_of_what_waits_again(store):
    entries = store.entries = Entries(store.scripts, replace(store.membership, history=20))
    entries.join()
    store.schedule("a", FAR_MS, extras=EXTRAS)
    store.schedule_relayed("b", NOW_MS)
    engine = store.engine()
    engine.nack("dead", engine.claim(1)[0], reason="NO_ROUTE")
    store.raw.delete(key(store, "due"), key(store, "dead"))
    repair(store)
    told = [(one.what.value, one.task_id, one.key) for one in entries.history(2)]
    assert sorted(told) == [("dead", "b", ""), ("repaired", "a", "k1")]


# Where there are two places.


@pytest.mark.parametrize("relayed", [False, True])
@pytest.mark.parametrize("index", ["due", "relay", "refused", "leased", "dead"])
def test_of_two_places_that_stays_where_it_waits(store, relayed, index):
    (store.schedule_relayed if relayed else store.schedule)("a", FAR_MS)
    before = store.contents()
    store.raw.zadd(
        key(store, index),
        {member_in(store, "a") if not relayed else relayed_member(store): NOW_MS + 1},
    )
    own = "relay" if relayed else "due"
    if index == own:
        store.raw.zadd(
            key(store, own), {relayed_member(store) if relayed else member_in(store, "a"): FAR_MS}
        )
    repair(store)
    assert store.contents() == before
    assert drain(store) == [("a", False)]


def relayed_member(store):
    return store.raw.zrange(key(store, "relay"), 0, 0)[0]
