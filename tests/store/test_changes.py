"""Changes of waiting entries, one or many: their times and places, and an answer for each."""

from dataclasses import replace
from datetime import timedelta

import pytest

from celery_delayq.core.clock import MAX_DUE_MS, When, after, by, from_ms
from celery_delayq.core.store import Outcome, State, target_of_key
from celery_delayq.core.store.changes import Move, Removal, Rewrite, changed
from celery_delayq.core.store.keys import target_of_member
from celery_delayq.core.store.record import Extras, NewRecord, lane_for
from celery_delayq.errors import AlreadyScheduled, InvalidDueTime, KeyHeld, UnreadableRecord
from tests.store import requests
from tests.store.requests import request
from tests.store.support import DUE_AT_ONCE, FAR_MS, HALF_PAST_US, NOW_MS, STILL_TO_COME, tally
from tests.store.test_key_order import later, scheduled

pytestmark = pytest.mark.core


# Reschedule: a new time for an entry that has not left, and no effect on one that has.


both_kinds = pytest.mark.parametrize("put", ["schedule", "schedule_relayed"])


def take(store, put) -> list[str]:
    """The ids of entries that a scanner takes now."""
    shard_steps = store.steps()
    if put == "schedule":
        store.raw.delete("celery")
        shard_steps.hand_over()
        return store.arrived()
    return [entry.task_id for entry in shard_steps.claim(10).entries]


@both_kinds
@pytest.mark.parametrize(
    ("old_ms", "new_ms"), [(FAR_MS, NOW_MS + 5), (NOW_MS + 5, FAR_MS)], ids=["earlier", "later"]
)
def test_a_moved_entry_fires_at_its_new_time_alone(store, put, old_ms, new_ms):
    getattr(store, put)("a", old_ms)
    assert store.reschedule("a", When("at", new_ms)) == (Outcome.DONE, new_ms)
    store.set_ms(new_ms - 1)
    assert take(store, put) == []
    store.set_ms(new_ms)
    assert take(store, put) == ["a"]


@both_kinds
@pytest.mark.parametrize(
    ("when", "expected"),
    [
        (When("at", 7), 7),
        (When("after", 0), NOW_MS),
        (When("after", 1500), NOW_MS + 1500),
        (When("by", 0), FAR_MS),
        (When("by", 1500), FAR_MS + 1500),
        (When("by", -1500), FAR_MS - 1500),
        (When("by", -2 * FAR_MS), 0),
    ],
)
def test_a_time_is_absolute_or_from_now_or_from_the_present_due_time(store, put, when, expected):
    getattr(store, put)("a", FAR_MS)
    assert store.reschedule("a", when) == (Outcome.DONE, expected)
    assert store.entries.find("a").due_ms == expected
    store.check()


@both_kinds
@pytest.mark.parametrize(("when", "due_ms"), DUE_AT_ONCE, ids=str)
def test_an_entry_moved_to_the_present_leaves_in_the_millisecond_that_has_begun(
    store, put, when, due_ms
):
    getattr(store, put)("a", FAR_MS)
    store.set_us(HALF_PAST_US)

    assert store.reschedule("a", when) == (Outcome.DONE, due_ms)

    assert take(store, put) == ["a"]


@pytest.mark.parametrize(("when", "due_ms"), STILL_TO_COME, ids=str)
def test_an_entry_moved_to_a_time_to_come_is_due_in_the_millisecond_after(store, when, due_ms):
    store.schedule("a", FAR_MS)
    store.set_us(HALF_PAST_US)

    assert store.reschedule("a", when) == (Outcome.DONE, due_ms)

    store.set_us(due_ms * 1000 - 1)
    assert take(store, "schedule") == []


@both_kinds
@pytest.mark.parametrize("share", [False, True])
def test_id_message_and_time_of_scheduling_stay(store, put, share):
    getattr(store, put)("a", FAR_MS, payload="x", share=share)
    before = store.entries.find("a")
    store.set_ms(NOW_MS + 1000)
    store.reschedule("a", When("at", FAR_MS + 1))
    after = store.entries.find("a")
    assert after.created_ms == before.created_ms == NOW_MS
    assert after.message == before.message.replace(b"%d" % FAR_MS, b"%d" % (FAR_MS + 1))
    store.check()


@pytest.mark.parametrize("due_ms", [0, 9, 999_999_999_999, MAX_DUE_MS])
def test_a_due_time_of_any_length_fits_the_record(store, due_ms):
    store.schedule("a", FAR_MS)
    store.reschedule("a", When("at", due_ms))
    assert store.entries.find("a").due_ms == store.score("due", "a") == due_ms
    assert store.reschedule("a", When("at", FAR_MS))[1] == FAR_MS
    assert store.entries.find("a").due_ms == FAR_MS


@pytest.mark.parametrize("relative", [after, by])
def test_a_time_past_the_last_is_refused_and_nothing_is_changed(store, relative):
    too_long = timedelta(milliseconds=MAX_DUE_MS)
    store.schedule("a", FAR_MS)
    before = store.snapshot()
    with pytest.raises(InvalidDueTime) as caught:
        store.reschedule("a", relative(too_long))
    assert str(caught.value).startswith("104249 days 23 hours 47 minutes 34.74 seconds is not ")
    assert store.snapshot() == before


@pytest.mark.parametrize(
    ("places", "outcome", "next_attempt"),
    [
        (["refused"], Outcome.DONE, (0, 0, False)),
        (["uncertain"], Outcome.UNCERTAIN, (1, 0, True)),
        (["uncertain", "refused"], Outcome.UNCERTAIN, (2, 0, True)),
    ],
)
def test_a_move_forgets_refusals_though_not_uncertainty(store, places, outcome, next_attempt):
    store.at("relay", due_ms=NOW_MS - 5)
    for place in places:
        store.take(place, "a")
    for due_ms in (NOW_MS - 4, NOW_MS - 3):
        assert store.reschedule("a", When("by", 1)) == (outcome, due_ms)
    (again,) = store.take("leased", "a")
    assert tally(again) == next_attempt


def test_uncertainty_outlives_a_claim_that_was_given_back(store):
    store.at("lapsed")
    store.reschedule("a", When("at", 7))
    assert [tally(one) for one in store.take("unsent", "a")] == [(1, 0, True)]
    assert [bool(one.uncertain) for one in store.take("leased", "a")] == [True]
    store.lease_out()
    assert store.entries.change("a", Removal())[0] is Outcome.UNCERTAIN


# Fields that a change keeps, and fields that it moves on.


def parts(store, task_id):
    """Insertion number, time of scheduling and time of the last change, in us."""
    fixed = store.record(task_id)[len("1L6:celery") :]
    return fixed[:6] + fixed[19:35], int.from_bytes(fixed[35:42], "big")


def test_a_change_keeps_number_and_time_of_scheduling_and_is_remembered(store):
    store.set_us(NOW_MS * 1000 + 777)
    store.schedule("a", FAR_MS)
    kept, changed = parts(store, "a")
    assert kept[6:] == b"%d" % (NOW_MS * 1000 + 777)
    assert changed == NOW_MS * 1000 + 777
    store.set_us(NOW_MS * 1000 + 5555)
    store.reschedule("a", When("by", 1))
    assert parts(store, "a") == (kept, NOW_MS * 1000 + 5555)
    assert store.entries.find("a").created_ms == NOW_MS


@pytest.mark.parametrize("back_us", [0, 249_000, 250_001, 3_600_000_000])
def test_each_change_is_later_than_the_one_before_or_now_where_the_clock_was_set_back(
    store, back_us
):
    store.schedule("a", FAR_MS)
    now_us = NOW_MS * 1000 - back_us
    store.set_us(now_us)
    first = now_us if back_us > 250_000 else NOW_MS * 1000 + 1
    for step in range(3):
        store.reschedule("a", When("by", 1))
        assert parts(store, "a")[1] == first + step


def test_a_replacement_counts_as_changed_after_the_entry_that_it_replaces(store):
    store.at("lapsed", "b")
    store.set_ms(NOW_MS - 100)
    store.schedule("b", FAR_MS, supersede=True)
    assert parts(store, "b")[1] == NOW_MS * 1000 + 1


def test_a_scanners_step_is_no_change(store):
    store.schedule_relayed("a", NOW_MS)
    before = store.record("a")
    store.set_ms(NOW_MS + 5000)
    store.take("refused", "a", wait=1)
    assert store.record("a") == before


# An edit that gives an entry another queue, kind, key or tags.


GRACE = Extras(grace_ms=5000)


@pytest.mark.parametrize("kind", ["L", "R"])
def test_an_edited_entry_waits_in_the_index_of_its_new_kind(store, kind):
    put = store.schedule_relayed if kind == "L" else store.schedule
    put("a", FAR_MS, extras=Extras("key", ("one",)))

    assert store.edit("a", kind=kind) is Outcome.DONE

    index, other = ("due", "relay") if kind == "L" else ("relay", "due")
    assert (store.score(index, "a"), store.score(other, "a")) == (FAR_MS, None)
    assert store.score("refused", "a") is None
    store.check()


@pytest.fixture
def parked(store):
    """ "a" and "b", of a queue that is paused for a minute: ``parked(late=True)``."""

    def park(**options):
        for task_id in ("a", "b"):
            store.schedule(task_id, extras=GRACE, queue="mail")
        store.entries.pause(lane_for(queue="mail"), "mail", **options)
        store.steps().hand_over()
        store.set_ms(NOW_MS + 60_000)

    return park


def test_an_entry_given_another_queue_leaves_a_pause_which_excuses_it(store, parked):
    parked()

    assert store.edit("a", queue="post") is Outcome.DONE
    assert store.entries.find("a").state is State.SCHEDULED
    store.set_ms(NOW_MS + 65_000)
    assert store.edit("b", queue="post") is Outcome.DONE
    store.set_ms(NOW_MS + 65_001)

    assert [one for one, _ in store.steps().hand_over().skipped] == ["a"]
    assert store.arrived() == ["b"]
    store.check()


def test_a_scanner_wakes_for_one_that_is_due_and_leaves_a_pause(store, parked):
    parked()
    store.raw.hset(store.keys["meta"], "timer", f"{FAR_MS}:scanner")

    store.edit("a", queue="post")

    assert store.raw.hget(store.keys["meta"], "timer") == b"%d:" % (NOW_MS + 60_000)


def test_a_pause_that_counts_as_lateness_excuses_nothing(store, parked):
    parked(late=True)

    store.edit("a", queue="post")

    assert [one for one, _ in store.steps().hand_over().skipped] == ["a"]


def test_a_refused_one_is_tried_at_once_in_its_new_queue(store):
    store.at("refused")

    assert store.edit("a", to="other", kind="L", queue="other") is Outcome.DONE

    assert store.steps().hand_over().handed_over == 1
    assert store.arrived("other") == ["a"]
    store.check()


def test_the_same_queue_leaves_an_edited_entry_in_its_place(store, parked):
    parked()

    assert (
        store.edit("a", queue="mail", extras=replace(GRACE, key="k", tags=("t",))) is Outcome.DONE
    )

    assert store.entries.find("a").state is State.PAUSED
    store.check()


@pytest.mark.parametrize(
    ("hold", "error"), [("", AlreadyScheduled), ("f60000", KeyHeld)], ids=["waits", "holds on"]
)
def test_a_key_that_another_one_has_is_refused_before_anything_is_written(store, hold, error):
    store.schedule("a", FAR_MS, extras=Extras("mine"))
    store.schedule("b", extras=Extras("theirs", hold=hold))
    if hold:
        store.steps().hand_over()
    before = store.record("a")

    with pytest.raises(AlreadyScheduled) as caught:
        store.edit("a", extras=Extras("theirs"))

    assert type(caught.value) is error
    assert (caught.value.task_id, caught.value.holder) == ("a", "b")
    assert not hold or caught.value.until == from_ms(NOW_MS + 60_000)
    assert store.record("a") == before


def test_the_key_of_a_dead_one_can_be_taken(store):
    store.at("dead", "b", extras=Extras("theirs"))
    store.schedule("a", FAR_MS)

    assert store.edit("a", extras=Extras("theirs")) is Outcome.DONE

    assert store.entries.find(b"ktheirs").task_id == "a"


def test_a_change_by_the_old_key_does_not_reach_an_edited_entry(store):
    store.schedule("a", FAR_MS, extras=Extras("old"))
    store.edit("a", extras=Extras("new"))

    assert store.entries.change(b"kold", Removal())[0] is Outcome.NOT_FOUND
    assert (
        store.entries.change(b"kold", Rewrite(None, NewRecord(b"", b"", b"")))[0]
        is Outcome.NOT_FOUND
    )
    assert store.entries.change(b"knew", Removal())[0] is Outcome.DONE


# Late requests, of callers that were interrupted.


def test_a_late_edit_gives_no_key_that_had_another_holder_since(store):
    store.schedule("a", FAR_MS)
    late = requests.edit(store, "a", extras=Extras("k"))
    later(store)
    store.schedule("b", FAR_MS, extras=Extras("k"))
    store.entries.change(b"kk", Removal())

    assert late.send() == [b"stale"]

    assert store.entries.find("a").extras.key == ""
    assert late.anew().answer() == b"done"
    store.check()


def test_a_late_schedule_does_not_take_the_key_that_an_edit_freed_since(store):
    store.schedule("a", FAR_MS, extras=Extras("k"))
    late = scheduled(store, "b")
    later(store)
    assert store.edit("a", extras=Extras("other")) is Outcome.DONE

    verdict, *answer = late.send()

    assert verdict == b"stale" or answer[0].startswith(b"again")
    assert store.entries.find("b") is None


def test_a_late_cancel_by_the_new_key_does_not_reach_an_edited_entry(store):
    store.schedule("a", FAR_MS)
    late = requests.cancel(store, b"knew")
    later(store)
    store.edit("a", extras=Extras("new"))

    assert late.send() == [b"stale"]
    assert store.entries.find("a").extras.key == "new"


def test_a_repeated_edit_is_done_once(store):
    store.schedule("a", FAR_MS, extras=Extras("old"))
    once = requests.edit(store, "a", extras=Extras("new"), kind="R")
    assert once.answer() == b"done"
    later(store)
    store.edit("a", extras=Extras("newer"))

    assert once.anew().answer() == b"done"

    assert store.entries.find("a").extras.key == "newer"
    store.check()


# Cancel and reschedule of many targets: one word each; all are checked before any changes.


DONE, GONE = Outcome.DONE, Outcome.NOT_FOUND


def cancelling(store, *targets, revoker):
    """A request to cancel them."""
    asked = {"mode": "cancel", "revoker": revoker, "tells": int(revoker != "none")}
    return request(store, "cancel", **asked, targets=list(targets))


def put(store, task_id, *, key="", tags=(), grace_ms=None):
    store.schedule(task_id, FAR_MS, share=True, extras=Extras(key, tags, grace_ms))


def member(store, task_id):
    """The target of that very entry."""
    members = store.raw.zrange(store.keys["due"], 0, -1)
    return target_of_member(next(one for one in members if one[6:] == task_id.encode()))


def cancel(store, *targets, **options):
    return [one for some in changed(store.shard, Removal(**options), targets) for one in some]


def move(store, targets, when=None, **options):
    steps = changed(store.shard, Move(when or When("at", 5), **options), targets)
    return [one for some in steps for one in some]


def left(store):
    """The contents of every key that entries use."""
    names = ("due", "relay", "dead", "records", "holders", "tags", "templates", "claims", "errors")
    return [name for name in names if store.raw.exists(store.keys[name])]


def every_place(store):
    """One entry in each place; their ids name it."""
    for place in ("dead", "leased", "refused", "relay"):
        store.at(place, place)
    put(store, "due", key="k", tags=("t", "u"))


def test_all_leave_from_wherever_they_are_and_each_has_its_own_answer(store):
    every_place(store)
    targets = ["dead", "nobody", target_of_key("k"), "leased", "relay", "refused"]
    answers = [(one.outcome, one.task_id) for one in cancel(store, *targets)]
    assert answers == [
        (DONE, "dead"),
        (GONE, "nobody"),
        (DONE, "due"),
        (Outcome.IN_FLIGHT, "leased"),
        (DONE, "relay"),
        (DONE, "refused"),
    ]
    store.lease_out()
    (last,) = cancel(store, "leased")
    assert last.outcome is Outcome.UNCERTAIN
    assert left(store) == []


def test_each_is_told_its_own_message_also_when_asked_again(store):
    for task_id in "abc":
        store.schedule(task_id, FAR_MS, payload=task_id * 5)
    call = cancelling(store, b"ia", b"inobody", b"ic", revoker="caller")
    first = call.send()
    assert first[1] == b"done not_found done"
    assert [one.place for one in first[2]] == [1, 3]
    assert all(text * 5 in one.message for text, one in zip((b"a", b"c"), first[2], strict=True))
    assert call.send() == first


def test_the_message_of_what_a_key_named_is_told_again(store):
    put(store, "a b%:", key="k")
    call = cancelling(store, target_of_key("k"), revoker="caller")
    first = call.send()
    assert first[2][0].place == 1
    assert call.send() == first


def test_a_task_that_is_named_twice_leaves_once(store):
    put(store, "a", key="k")
    put(store, "b")
    answers = cancel(store, "a", target_of_key("k"), "a")
    assert [one.outcome for one in answers] == [DONE, GONE, GONE]
    # The template of the other one is still there.
    store.check()
    assert store.entries.find("b")


def test_a_target_changed_since_the_request_leaves_all_as_they_are(store):
    for task_id in "ab":
        store.schedule(task_id, FAR_MS)
    call = cancelling(store, b"ia", b"ib", revoker="none")
    store.set_ms(NOW_MS + 1)
    store.reschedule("b", When("at", FAR_MS + 1))
    before = store.snapshot()
    assert call.send() == [b"stale"]
    assert store.snapshot() == before
    assert call.anew().answer() == b"done done"


def test_targets_beyond_the_bound_of_bytes_take_further_calls(store, limits):
    limits(change_bytes=20_000)
    ids = [f"a{number}" for number in range(10)]
    for task_id in ids:
        store.schedule(task_id, FAR_MS, payload="x" * 9_000)
    moved = list(changed(store.shard, Move(When("at", FAR_MS + 1)), ids))
    assert [len(some) for some in moved] == [3, 3, 3, 1]
    steps = list(changed(store.shard, Removal(), ids))
    assert [len(some) for some in steps] == [3, 3, 3, 1]
    answers = [one for some in steps for one in some]
    assert [one.task_id for one in answers] == ids
    assert all(one.outcome is DONE and one.cancelled for one in answers)


def test_messages_are_told_where_wanted_and_a_scanner_gets_at_once_what_it_has_to_store(store):
    shard_steps = store.steps()
    wanted = {"a": {"revoker": "caller"}, "b": {"revoker": "scanner", "tells": False}, "c": {}}
    for task_id, options in wanted.items():
        store.schedule(task_id, FAR_MS)
        (answer,) = cancel(store, task_id, **options)
        assert (answer.cancelled.message == b"") == (task_id == "b")
    assert [one.task_id for one in shard_steps.owed()] == ["b"]


def test_a_member_is_that_very_entry(store):
    put(store, "a")
    first = member(store, "a")
    store.entries.change("a", Removal())
    put(store, "a")
    for target, outcome in ((first, None), (member(store, "a"), DONE)):
        assert store.places("a") == ["due"]
        assert [one.outcome for one in cancel(store, target, chosen="- - - - -")] == [outcome]


@pytest.mark.parametrize(
    "chosen",
    [
        f"{FAR_MS + 1} {FAR_MS + 2} - - -",
        f"0 {FAR_MS} - - -",
        f"0 {FAR_MS + 1} DEAD - -",
        f"0 {FAR_MS + 1} - {'0' * 12} -",
        f"0 {FAR_MS + 1} - - {'0' * 12}",
        f"0 {FAR_MS + 1} - - - k",
        "- - - - - b",
        "- - - - -  t",
        "- - - - - 5:0000000000000",
    ],
)
def test_a_task_that_a_selection_no_longer_matches_is_skipped(store, chosen):
    put(store, "a", key="k", tags=("t", "b t"), grace_ms=5)
    target, before = member(store, "a"), store.snapshot()

    for one in (*move(store, [target], chosen=chosen), *cancel(store, target, chosen=chosen)):
        assert one.outcome is None

    assert store.snapshot() == before


@pytest.mark.parametrize(
    "chosen", [f"{FAR_MS} {FAR_MS + 1} SCHEDULED - - t", f"0 {FAR_MS + 1} - - - b t"]
)
def test_a_task_that_a_selection_matches_is_moved_and_cancelled(store, chosen):
    put(store, "a", key="k", tags=("t", "b t"), grace_ms=5)
    target = member(store, "a")
    assert [one.outcome for one in move(store, [target], When("by", 0), chosen=chosen)] == [DONE]
    assert [one.outcome for one in cancel(store, target, chosen=chosen)] == [DONE]


def test_a_member_that_has_left_is_no_concern_of_a_selection(store):
    put(store, "a")
    target = member(store, "a")
    store.entries.change("a", Removal())
    store.raw.delete(store.keys["calls"])
    for one in (*cancel(store, target), *move(store, [target])):
        assert one.outcome is None
    assert store.known_calls()[1] == []


def test_moved_ones_wake_a_scanner_for_the_earliest(store):
    shard_steps = store.steps()
    for task_id in "abc":
        store.schedule(task_id, FAR_MS)
    shard_steps.hand_over(asleep=60)
    move(store, ["a", "b", "c"], When("by", -86_400_000 + 9))
    assert store.raw.hget(store.keys["meta"], "timer").startswith(b"%d:" % (NOW_MS + 9))


ONLY_EARLIER, ONLY_LATER = {"only": "earlier"}, {"only": "later"}


@pytest.mark.parametrize(
    ("when", "conditions", "outcome"),
    [
        (When("at", FAR_MS - 1), ONLY_EARLIER, DONE),
        (When("at", FAR_MS), ONLY_EARLIER, Outcome.UNCHANGED),
        (When("at", FAR_MS + 1), ONLY_EARLIER, Outcome.UNCHANGED),
        (When("after", 1), ONLY_LATER, Outcome.UNCHANGED),
        (When("by", 0), ONLY_LATER, Outcome.UNCHANGED),
        (When("by", 1), ONLY_LATER, DONE),
        (When("at", 5), {"if_due_ms": FAR_MS}, DONE),
        (When("at", 5), {"if_due_ms": FAR_MS - 1}, Outcome.UNCHANGED),
        (When("at", 5), {"only": "later", "if_due_ms": FAR_MS}, Outcome.UNCHANGED),
    ],
)
def test_a_move_under_a_condition_is_done_or_leaves_all_unchanged(store, when, conditions, outcome):
    store.schedule("a", FAR_MS)
    before = store.snapshot()
    answer, due_ms = store.reschedule("a", when, **conditions)
    assert answer is outcome
    assert (due_ms is None) == (outcome is Outcome.UNCHANGED)
    assert (store.snapshot() == before) == (outcome is Outcome.UNCHANGED)


def flags(store, task_id):
    record = store.record(task_id)
    return record[record.index(b":") + 1 + len("celery") + 42] - ord("0")


def test_run_now_is_due_at_once_with_its_flag_until_it_is_moved(store):
    put(store, "a", key="k", tags=("t",))
    store.set_us(NOW_MS * 1000 + 999)
    for _ in range(2):
        now = store.reschedule(target_of_key("k"), When("at", 0), mode="now")
        assert now == (DONE, NOW_MS)
        assert flags(store, "a") == 8 + 2 + 1
    assert store.entries.find("a").extras == Extras("k", ("t",))
    store.reschedule("a", When("by", 5))
    assert flags(store, "a") == 2 + 1
    assert store.entries.find("a").extras == Extras("k", ("t",))


def test_retry_lets_what_is_dead_wait_again_due_at_once_and_nothing_else(store):
    every_place(store)
    store.set_ms(NOW_MS + 7)
    moved = {"dead": (DONE, NOW_MS + 7), "due": (Outcome.UNCHANGED, None)}
    for task_id, answer in moved.items():
        assert store.reschedule(task_id, When("at", 0), mode="retry") == answer
    assert store.places("dead") == ["relay"]
    assert store.raw.hget(store.keys["errors"], "dead") is None


def test_remove_deletes_only_what_is_dead(store):
    every_place(store)
    ids = ["due", "relay", "refused", "leased", "nobody", "dead"]
    answers = [one.outcome for one in cancel(store, *ids, only_dead=True)]
    assert answers == [*[Outcome.UNCHANGED] * 3, Outcome.IN_FLIGHT, GONE, DONE]
    assert store.record("dead") is None
    assert store.entries.find("dead") is None


def test_remove_deletes_what_cannot_be_read_once_it_is_dead(store):
    put(store, "a")
    target = member(store, "a")
    store.raw.hset(store.keys["records"], "a", b"0" + store.record("a")[1:])
    assert isinstance(cancel(store, target, only_dead=True)[0].error, UnreadableRecord)
    store.set_ms(FAR_MS)
    store.steps().hand_over()
    assert store.places("a") == ["dead"]
    with pytest.raises(UnreadableRecord, match="record format"):
        store.entries.change("a", Removal())
    assert isinstance(cancel(store, target)[0].error, UnreadableRecord)
    assert cancel(store, target, only_dead=True)[0].outcome is DONE
    assert {"records", "dead", "errors"}.isdisjoint(left(store))


def test_a_task_that_would_be_due_too_late_holds_up_no_other(store):
    store.schedule("a", MAX_DUE_MS)
    store.schedule("b", FAR_MS)
    first, second = move(store, ["a", "b"], When("by", 1_000_000_000))
    assert isinstance(first.error, InvalidDueTime)
    assert second.due_ms == FAR_MS + 1_000_000_000
