"""Cancel and reschedule of many targets: one word each; all are checked before any changes."""

import pytest

from celery_delayq.core.clock import MAX_DUE_MS, When
from celery_delayq.core.store import Outcome, target_of_key
from celery_delayq.core.store.changes import Move, Removal, changed
from celery_delayq.core.store.keys import target_of_member
from celery_delayq.core.store.record import Extras
from celery_delayq.errors import InvalidDueTime, UnreadableRecord
from tests.store.requests import request
from tests.store.support import FAR_MS, NOW_MS

pytestmark = pytest.mark.core

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
