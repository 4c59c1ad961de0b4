"""An entry gets another message, at its time or at once, if it is as its caller read it."""

import json
from dataclasses import replace

import pytest

from celery_delayq.contrib.care.check import check_store
from celery_delayq.core.clock import When
from celery_delayq.core.store import Filter, Outcome, State
from celery_delayq.core.store.changes import Removal, Rewrite, rewritten
from celery_delayq.core.store.keys import target_of_member
from celery_delayq.core.store.record import Extras, NewRecord, header_for, lane_for
from tests.store.support import FAR_MS, LINES, NOW_MS, ROUTE, WAITING, new_record, tally
from tests.store.test_aborted import Case, StoppableStore, stop_at
from tests.store.test_history import with_history
from tests.store.test_scanners import listen, scanner

__all__ = ["listen", "scanner"]


# Editing: an entry gets another message if it is as its caller saw it; the rest stays.


SHARE = pytest.mark.parametrize("share", [False, True], ids=["whole", "template"])
SMALL = 4000  # bytes of a record, as the scripts say
LARGE = "x" * 5000
OTHER_LINES = [line.replace("remind", "other") for line in LINES]
NOTHING = NewRecord(b"", b"", b"")
EXTRAS = Extras("key", ("one", "two"), grace_ms=5000)


def body_of(store, task_id):
    return json.loads(store.entries.find(task_id).message)["body"]


def number_of(store, task_id):
    record = store.entries.find(task_id).record
    return int.from_bytes(record.text[record.header_end : record.header_end + 6], "big")


@SHARE
@pytest.mark.parametrize("to_share", [False, True])
def test_the_message_is_another_and_all_else_stays(store, share, to_share):
    store.schedule("a", FAR_MS, payload="old", share=share, extras=EXTRAS)
    before = store.entries.find("a")
    store.set_ms(NOW_MS + 7)

    assert store.edit("a", "new", share=to_share) is Outcome.DONE

    after = store.entries.find("a")
    assert body_of(store, "a") == "new"
    assert (after.due_ms, after.created_ms, after.extras, after.state) == (
        before.due_ms,
        before.created_ms,
        EXTRAS,
        State.SCHEDULED,
    )
    assert after.changed_us == (NOW_MS + 7) * 1000
    assert store.score("due", "a") == FAR_MS
    store.check()


def test_an_edited_entry_goes_to_its_new_list_at_its_due_time(store):
    store.schedule("a", NOW_MS)
    store.edit("a", "new", to="other")

    assert store.steps().hand_over().handed_over == 1
    assert (store.arrived("celery"), store.arrived("other")) == ([], ["a"])
    store.check()


def test_each_edit_is_a_state_of_its_own_also_where_the_clock_was_set_back(store):
    store.schedule("a", FAR_MS)
    seen = [store.entries.find("a").changed_us]
    for ms in (NOW_MS, NOW_MS - 5000, NOW_MS - 5000):
        store.set_ms(ms)
        assert store.edit("a", f"{ms}")
        seen.append(store.entries.find("a").changed_us)
    assert len(set(seen)) == 4


# By key.


def test_an_entry_can_be_edited_by_its_key(store):
    store.schedule("a", FAR_MS, extras=EXTRAS)
    entry = store.entries.find(b"kkey")

    assert store.entries.change(b"kkey", Rewrite(None, NOTHING))[0] is Outcome.UNCHANGED
    assert store.entries.change(b"knone", Rewrite(None, NOTHING))[0] is Outcome.NOT_FOUND
    assert store.edit(b"kkey", "new", entry=entry) is Outcome.DONE
    assert body_of(store, "a") == "new"


def test_an_edit_of_whoever_had_the_key_does_not_reach_the_next(store):
    store.schedule("a", FAR_MS, extras=EXTRAS)
    read = store.entries.find("a")
    store.set_ms(NOW_MS + 1)
    store.schedule("b", FAR_MS, payload="b", extras=EXTRAS, conflict="replace")

    assert store.edit(b"kkey", "a's", entry=read) is Outcome.UNCHANGED
    assert body_of(store, "b") == "b"


# Places.


@pytest.mark.parametrize("payload", ["new", LARGE], ids=["small", "grows"])
@pytest.mark.parametrize("place", [*WAITING, "dead", "lapsed", "uncertain"])
def test_an_edited_entry_stays_in_its_place_with_its_time_and_error(store, place, payload):
    store.at(place, extras=EXTRAS)
    (index,) = store.places("a")
    before, time = store.entries.find("a"), store.score(index, "a")

    is_done = place not in ("lapsed", "uncertain")
    assert store.edit("a", payload) is (Outcome.DONE if is_done else Outcome.UNCERTAIN)

    if place == "lapsed":  # it waits again
        index, time = "relay", NOW_MS
    after = store.entries.find("a")
    assert (store.places("a"), store.score(index, "a")) == ([index], time)
    assert after.facts.error == before.facts.error
    assert after.state is before.state or place == "lapsed"
    assert list(check_store(store.entries)) == []
    store.check()
    assert store.entries.change("a", Removal())[0] in (Outcome.DONE, Outcome.UNCERTAIN)
    assert store.places("a") == []


@pytest.mark.parametrize("place", ["parked", "refused", "dead"])
def test_an_entry_leaves_as_it_was_edited(store, place):
    store.at(place)
    for payload in (LARGE, "new"):
        store.edit("a", payload)

    if place == "parked":
        store.entries.resume(lane_for(queue="celery"))
    else:
        store.reschedule("a", When("at", NOW_MS))
    shard_steps = store.steps()
    for _ in range(2):  # the first step brings parked ones back
        shard_steps.hand_over()

    messages = store.raw.lrange("celery", 0, -1)
    messages += [one.message for one in shard_steps.claim(1).entries]
    assert [json.loads(one)["body"] for one in messages] == ["new"]
    store.check()


def test_a_lease_that_ran_out_ends_and_its_holder_acknowledges_nothing(store):
    shard_steps, old = store.steps(), store.at("lapsed")

    assert store.edit("a", "new") is Outcome.UNCERTAIN

    assert shard_steps.ack(old) == 0
    assert shard_steps.reclaim() == []
    [claimed] = store.take("leased", "a")
    assert json.loads(claimed.message)["body"] == "new"
    assert tally(claimed) == (1, 0, True)
    assert claimed.hand_over != old[0].hand_over
    store.check()


# Growing beyond the limit of small entries.


@SHARE
@pytest.mark.parametrize("kind", ["list", "relay"])
def test_an_entry_that_grows_is_numbered_as_large_in_its_place_and_by_its_tags(store, share, kind):
    put = store.schedule if kind == "list" else store.schedule_relayed
    for task_id in ("before", "a", "behind"):
        put(task_id, NOW_MS, share=share, extras=Extras("key of " + task_id, ("one", "two")))
    small = number_of(store, "a")

    assert store.edit("a", LARGE, share=share) is Outcome.DONE

    assert (small % 2, number_of(store, "a")) == (0, small + 1)
    store.check()
    assert list(check_store(store.entries)) == []
    shard_steps = store.steps()
    shard_steps.hand_over()
    gone = store.arrived() or [one.task_id for one in shard_steps.claim(5)[0]]
    assert gone == ["before", "a", "behind"]


def test_one_byte_more_than_a_small_record_may_have_makes_it_a_large_one(store):
    for task_id in ("a", "b"):
        store.schedule(task_id, FAR_MS)
    store.edit("a", "x" * 3000)

    store.edit("b", "x" * (3000 + SMALL + 1 - len(store.record("a"))))

    assert (len(store.record("b")), number_of(store, "b") % 2) == (SMALL + 1, 1)


def test_an_entry_that_shrinks_again_keeps_the_number_of_a_large_one(store):
    store.schedule("a", FAR_MS, extras=EXTRAS)
    store.edit("a", LARGE)
    large = number_of(store, "a")

    assert store.edit("a", "small")

    assert number_of(store, "a") == large
    assert list(check_store(store.entries)) == []
    store.check()


# Templates.


def test_a_template_is_counted_by_who_shares_it_and_goes_with_the_last(store):
    for task_id in ("a", "b"):
        store.schedule(task_id, FAR_MS, share=True)

    store.edit("a", "new", lines=OTHER_LINES)
    store.check()
    store.edit("b", "new", lines=OTHER_LINES)
    store.check()
    assert store.raw.hlen(store.keys["templates"]) == 1
    for task_id in ("a", "b"):
        store.edit(task_id, "new", share=False)
    assert store.raw.hlen(store.keys["templates"]) == 0
    store.check()


def test_the_number_that_it_takes_is_a_new_one_where_the_last_was_lost(store):
    ids = [store.schedule(one) and one for one in ("a", "b", "c")]
    store.raw.hdel(store.keys["meta"], "seq")
    store.edit("a", "new")
    store.schedule("d", FAR_MS)
    records = [store.entries.find(one).record for one in (*ids, "d")]
    numbers = [one.text[one.header_end : one.header_end + 6] for one in records]
    assert numbers == sorted(set(numbers))


def test_a_task_that_shares_an_edited_one_s_template_needs_it_no_more_to_be_sent(store):
    store.schedule("a", FAR_MS, share=True)
    store.edit("a", "new", share=False)
    assert store.schedule("b", FAR_MS, share=True) == FAR_MS
    store.check()


@pytest.mark.parametrize(
    ("expires", "read"), [("+5000", 5000), ("-5000", -5000), ('"2100-01-01T00:00:00+00:00"', None)]
)
def test_an_expiry_that_counts_from_the_due_time_is_read_and_kept(store, expires, read):
    store.schedule("a", FAR_MS, share=True)
    assert store.entries.find("a").record.expires_ms is None
    store.edit("a", "new", expires=expires)
    assert store.entries.find("a").record.expires_ms == read
    store.edit("a", "new", share=False)
    assert store.entries.find("a").record.expires_ms is None


# Release: an entry goes at once with another message, if it is as its caller read it.


@pytest.fixture
def stoppable(redis_server, redis_url):
    made = StoppableStore(redis_server)
    yield made
    made.close()


both_kinds = pytest.mark.parametrize("put", ["schedule", "schedule_relayed"])


def part_of(store, task_id, payload="new"):
    record = store.entries.find(task_id).record
    place = ("L", "celery") if record.is_for_list else ("R", ROUTE)
    new = record.released(new_record(task_id, header_for(*place), payload))
    return task_id, Rewrite(record, new, releases=True)


def release(store, *parts, **options):
    parts = [(who, replace(what, **options)) for who, what in parts]
    return [one.outcome for one in rewritten(store.shard, parts)]


@both_kinds
@pytest.mark.parametrize("payload", ["new", LARGE], ids=["small", "grows"])
def test_a_released_entry_is_due_now_with_its_new_message_and_its_key_and_tags(store, put, payload):
    getattr(store, put)("a", FAR_MS, share=True, extras=EXTRAS)
    before = store.entries.find("a")
    store.set_ms(NOW_MS + 7)

    assert release(store, part_of(store, "a", payload)) == [Outcome.DONE]

    after = store.entries.find("a")
    assert json.loads(after.message)["body"] == payload
    assert store.score("due" if put == "schedule" else "relay", "a") == NOW_MS + 7
    assert (after.due_ms, after.created_ms) == (NOW_MS + 7, before.created_ms)
    assert after.extras == replace(EXTRAS, grace_ms=None)
    store.check()


@both_kinds
def test_a_released_entry_is_neither_moved_nor_edited(store, put):
    getattr(store, put)("a", FAR_MS)
    release(store, part_of(store, "a"))

    assert store.entries.find("a").record.is_released
    assert store.reschedule("a", When("at", FAR_MS))[0] is Outcome.HANDED_OVER
    assert store.edit("a", "newer") is Outcome.HANDED_OVER


def test_an_entry_that_a_selection_no_longer_matches_stays(store):
    tagged, ids = Extras(tags=("x",)), ("a", "gone", "other", "anew")
    for task_id in ids:
        store.schedule(task_id, FAR_MS, extras=Extras() if task_id == "other" else tagged)
    parts = [
        (target_of_member(what.seen.seen[:6] + task_id.encode()), what)
        for task_id, what in (part_of(store, one) for one in ids)
    ]
    store.entries.change("gone", Removal())
    store.entries.change("anew", Removal())
    store.schedule("anew", FAR_MS, extras=tagged)

    found = release(store, *parts, chosen=Filter(tags=("x",)).text)

    assert found == [Outcome.DONE, None, None, None]
    assert store.entries.find("anew").due_ms == store.entries.find("other").due_ms == FAR_MS


def test_an_entry_that_lost_its_key_since_it_was_read_stays_without_it(store):
    claims = store.at("leased", "a", extras=Extras("key"))
    part = part_of(store, "a")
    store.schedule("other", FAR_MS, extras=Extras("key"))
    store.steps().nack("unsent", claims)
    assert release(store, part) == [Outcome.UNCHANGED]
    assert store.entries.find("a").extras.key == ""
    store.check()


def test_the_history_calls_a_release_no_edit(store):
    with_history(store)
    store.schedule("a", FAR_MS)
    release(store, part_of(store, "a"))
    assert [one.what.value for one in store.entries.history(10)] == ["scheduled"]


def test_a_call_leaves_an_entry_beyond_its_bound_of_bytes_unchanged(store, limits):
    for task_id in ("a", "b"):
        store.schedule(task_id, FAR_MS)
    limits(change_bytes=1)
    parts = [part_of(store, one) for one in ("a", "b")]
    assert release(store, *parts) == [Outcome.DONE, Outcome.UNCHANGED]
    assert release(store, parts[1]) == [Outcome.DONE]


@both_kinds
def test_the_scanner_that_is_up_next_is_told(store, listen, scanner, put):
    getattr(store, put)("a", FAR_MS)
    scanner("one")
    ears = listen("one")
    release(store, part_of(store, "a"))
    assert ears.heard() == ["one"]


@pytest.mark.parametrize("payload", ["new", LARGE])
def test_where_redis_stops_a_release_nothing_leaves_early_as_it_was(stoppable, payload):
    """Its old message does not make a worker wait."""
    store = stoppable
    case = Case(
        "rewrite",
        "far",
        lambda ready: release(ready.store, part_of(ready.store, "far", payload)),
        lambda ready: ready.store.schedule("far", FAR_MS, payload="old", share=True, extras=EXTRAS),
    )
    trace = stop_at(store, case, 0, "")[-1]
    for nth in range(1, len(trace) + 1):
        for side in ("before", "after"):
            ready, *_ = stop_at(store, case, nth, side)
            ready.steps.hand_over()
            bodies = [json.loads(one)["body"] for one in ready.store.raw.lrange("celery", 0, -1)]
            assert "old" not in bodies
            assert bool(ready.store.entries.find("far")) != (payload in bodies)
