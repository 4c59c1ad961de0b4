"""A key may be held longer than its entry waits: until its run has finished, or for a while."""

import json
from dataclasses import replace
from itertools import count

import pytest

from celery_delayq.core.clock import When
from celery_delayq.core.store import NewEntry, Outcome
from celery_delayq.core.store.extras import Extras
from celery_delayq.core.store.ids import target_of_key
from celery_delayq.core.store.record import destination_for
from celery_delayq.errors import AlreadyScheduled, InFlight, KeyHeld
from tests.store.support import FAR_MS, NOW_MS, new_record

pytestmark = pytest.mark.core

SECOND = 1000
FINISHED = Extras("k", hold=f"f{60 * SECOND}")
WINDOW = Extras("k", hold=f"w{60 * SECOND}")
END_MS = NOW_MS + 60 * SECOND

_numbers = count(1)


@pytest.fixture
def shard_steps(store):
    return store.steps(lease=5)


def schedule(store, task_id="new", due_ms=FAR_MS, extras=FINISHED, **options):
    return store.schedule(task_id, due_ms, extras=extras, **options)


def deliver(store, shard_steps, task_id="a", extras=FINISHED):
    """Deliver an entry with the key; return the header of its message."""
    schedule(store, task_id, NOW_MS, extras)
    assert shard_steps.hand_over().handed_over == 1
    return header(store)


def header(store):
    """The newest message's header about its key."""
    message = json.loads(store.raw.lindex("celery", 0))
    return message["headers"].get("delayq_hold")


def say(store, hold, ms=0, lease=0, **others):
    """A worker's word; return how the key is held after it."""
    hold = {**hold, **others}
    words = [hold["id"], hold["key"], hold["delivery"], ms, lease]
    store.scripts.call("hold", words=words)
    return ends(store)


def ends(store):
    """Until when a task that has left holds the key; ``None``: it does not."""
    row = store.raw.hget(store.keys["holders"], "k")
    score = store.raw.zscore(store.keys["held"], "k")
    return int(score) if row and b"\xff" in row else None


def is_free(store, **options):
    """Schedule another task under the key; return whether that was possible."""
    try:
        schedule(store, f"next{next(_numbers)}", **options)
    except AlreadyScheduled as error:
        return error.holder != "a"
    return True


@pytest.mark.parametrize("share", [False, True])
@pytest.mark.parametrize("key", ["k", 'a "key"\\', "\u00e9\u4e2d\x01\x7f", "%1"])
def test_its_message_names_the_key_the_delivery_and_the_time(store, shard_steps, key, share):
    schedule(store, "a", NOW_MS, Extras(key, ("x",), hold="f5"), share=share)
    [before] = store.entries.waiting(0, FAR_MS)
    number, changed = before.record.seen[:6], before.record.changed_us

    shard_steps.hand_over()

    delivery = f"{int.from_bytes(number, 'big')}.{changed}"
    assert header(store) == {"id": "a", "key": key, "delivery": delivery, "ms": 5}
    message = json.loads(store.raw.lindex("celery", 0))
    del message["headers"]["delayq_hold"]
    assert message == json.loads(before.message)


@pytest.mark.parametrize("extras", [Extras("k"), WINDOW, Extras(tags=("x",))])
def test_other_messages_have_no_such_header(store, shard_steps, extras):
    assert deliver(store, shard_steps, extras=extras) is None


def test_it_is_held_once_delivered_until_the_end_in_time(store, shard_steps):
    deliver(store, shard_steps)
    store.set_ms(END_MS - 1)
    assert not is_free(store)
    store.check()

    store.set_ms(END_MS)
    assert is_free(store)
    store.check()


def test_the_end_counts_from_the_hand_over(store, shard_steps):
    schedule(store, "a", NOW_MS)
    store.set_ms(NOW_MS + 5)
    shard_steps.hand_over()
    assert ends(store) == END_MS + 5


def test_a_word_of_the_end_frees_it(store, shard_steps):
    assert say(store, deliver(store, shard_steps)) is None
    assert not store.raw.exists(store.keys["holders"], store.keys["held"])
    assert is_free(store)


@pytest.mark.parametrize("wrong", [{"id": "b"}, {"key": "other"}, {"delivery": "2.1"}])
def test_a_word_about_something_else_frees_nothing(store, shard_steps, wrong):
    assert say(store, deliver(store, shard_steps), **wrong) == END_MS
    assert not is_free(store)


def test_a_word_that_comes_late_does_not_touch_another_holder(store, shard_steps):
    hold = deliver(store, shard_steps)
    say(store, hold)
    deliver(store, shard_steps, "b")

    assert say(store, hold) == END_MS
    with pytest.raises(KeyHeld, match="'b'"):
        schedule(store)


def test_a_word_that_comes_late_does_not_touch_a_later_delivery_of_its_own_id(store, shard_steps):
    hold = deliver(store, shard_steps)
    say(store, hold)
    store.set_ms(NOW_MS + 1)
    again = deliver(store, shard_steps)

    assert again["delivery"] != hold["delivery"]
    assert say(store, hold) is not None
    assert say(store, again) is None


def test_a_word_that_comes_late_does_not_touch_one_that_waits(store, shard_steps):
    hold = deliver(store, shard_steps)
    say(store, hold)
    schedule(store, "a")

    say(store, hold)

    assert store.raw.hget(store.keys["holders"], "k") == b"a"
    store.check()


def test_a_word_that_it_goes_on_moves_the_end(store, shard_steps):
    hold = deliver(store, shard_steps)
    store.set_ms(NOW_MS + 50 * SECOND)
    assert say(store, hold, 60 * SECOND) == END_MS + 50 * SECOND
    assert say(store, hold, 30 * SECOND) == END_MS + 50 * SECOND, "an earlier one came late"


def test_a_word_that_it_goes_on_holds_nothing_that_was_free(store, shard_steps):
    hold = deliver(store, shard_steps)
    say(store, hold)
    assert say(store, hold, 60 * SECOND) is None

    hold = deliver(store, shard_steps)
    store.set_ms(END_MS)
    say(store, hold, 60 * SECOND)
    assert is_free(store), "its time was over"


def test_a_lease_lets_it_end_earlier_than_its_hand_over_said(store, shard_steps):
    hold = deliver(store, shard_steps)
    assert say(store, hold, 10 * SECOND, lease=1) == NOW_MS + 10 * SECOND
    assert say(store, hold, 10 * SECOND - 1, lease=1) == NOW_MS + 10 * SECOND, "came late"

    store.set_ms(NOW_MS + 10 * SECOND)
    assert is_free(store), "its worker is gone"


def test_a_lease_does_not_shorten_what_a_retry_holds(store, shard_steps):
    hold = deliver(store, shard_steps)
    retry_ends = say(store, hold, 90 * SECOND)
    assert say(store, hold, 10 * SECOND, lease=1) == retry_ends


def test_a_lease_that_has_run_out_is_taken_up_again_if_nobody_has_the_key(store, shard_steps):
    hold = deliver(store, shard_steps)
    later = say(store, hold, 10 * SECOND, lease=1) + SECOND
    store.set_ms(later)
    assert say(store, hold, 10 * SECOND, lease=1) == later + 10 * SECOND

    store.set_ms(later + 10 * SECOND)
    schedule(store)
    assert say(store, hold, 10 * SECOND, lease=1) is None, "the next one has it"
    store.check()


def test_a_lease_of_a_forgotten_delivery_ends_nothing_earlier(store, shard_steps):
    hold = deliver(store, shard_steps)
    store.raw.delete(store.keys["tombstones"])
    assert say(store, hold, 10 * SECOND, lease=1) == END_MS


def test_ended_ones_are_forgotten_a_batch_at_a_time(store):
    shard_steps = store.steps(batch_size=2)
    for number in range(5):
        schedule(store, f"a{number}", NOW_MS, Extras(f"k{number}", hold="f1000"))
    while shard_steps.hand_over().handed_over:
        pass
    assert store.raw.zcard(store.keys["held"]) == 5

    store.set_ms(NOW_MS + SECOND)
    for left in (3, 1, 0):
        shard_steps.hand_over()
        assert store.raw.zcard(store.keys["held"]) == store.raw.hlen(store.keys["holders"]) == left


def test_forgetting_an_ended_holder_spares_the_entry_that_waits_meanwhile(store, shard_steps):
    deliver(store, shard_steps)
    store.set_ms(END_MS)
    schedule(store, "b")
    shard_steps.hand_over()
    assert store.raw.hget(store.keys["holders"], "k") == b"b"
    store.check()


# The answer to another task with the key.


def test_a_task_with_keep_is_given_the_holder_that_has_left(store, shard_steps):
    deliver(store, shard_steps)
    [receipt] = schedule_many(store, "keep", revokes="all")
    assert (receipt.task_id, receipt.existed) == ("a", True)
    [mine] = receipt.cancelled
    assert (mine.task_id, mine.reason) == ("new", "kept a")


def schedule_many(store, conflict, extras=FINISHED, task_id="new", **options):

    record = new_record(task_id, destination_for("L", "celery"), share=True).with_extras(extras)
    new = NewEntry(task_id, When("at", FAR_MS), record, conflict)
    return store.entries.schedule([new], **options)


def test_a_task_without_a_policy_is_refused(store, shard_steps):
    deliver(store, shard_steps)
    before = store.snapshot()
    [error] = schedule_many(store, "", revokes="all")
    assert type(error) is KeyHeld
    assert (error.task_id, error.holder) == ("new", "a")
    assert store.snapshot() == before


def test_the_id_that_runs_is_refused_as_well_and_not_revoked(store, shard_steps):
    deliver(store, shard_steps)
    [error] = schedule_many(store, "", task_id="a")
    assert type(error) is KeyHeld
    [receipt] = schedule_many(store, "keep", task_id="a", revokes="all")
    assert (receipt.task_id, receipt.existed, receipt.cancelled) == ("a", True, ())


def test_cancel_and_find_know_that_it_was_handed_over(store, shard_steps):
    deliver(store, shard_steps)
    who = target_of_key("k")
    assert store.entries.cancel(who)[0] is Outcome.HANDED_OVER
    assert store.entries.find(who) is None
    assert store.entries.departure(who).how == "handed_over"
    assert not is_free(store)


def test_the_key_of_what_has_left_does_not_name_a_later_entry_of_its_id(store, shard_steps):
    deliver(store, shard_steps)
    schedule(store, "a", extras=Extras("other"))
    who = target_of_key("k")

    assert store.entries.find(who) is None
    assert store.entries.cancel(who)[0] is Outcome.HANDED_OVER
    assert store.entries.move(who, When("at", NOW_MS))[0] is Outcome.HANDED_OVER
    assert store.entries.state("a")


# The running task schedules itself.


def going_on(hold):
    return {"extras": Extras("k", hold=f"f{hold['ms']}"), "run": hold["delivery"]}


def test_a_running_task_takes_its_key_along(store, shard_steps):
    hold = deliver(store, shard_steps)
    schedule(store, "a", **going_on(hold), supersede=True)
    assert say(store, hold) is None, "the run that ends says so; but the key is no longer its"

    assert not is_free(store)
    store.reschedule("a", When("at", NOW_MS))
    shard_steps.hand_over()
    assert header(store)["delivery"] != hold["delivery"]
    assert say(store, hold) == END_MS
    assert say(store, header(store)) is None
    store.check()


def test_a_running_task_that_lost_its_key_goes_on_without_it(store, shard_steps):
    hold = deliver(store, shard_steps)
    store.set_ms(END_MS)
    schedule(store, "b")

    schedule(store, "a", **going_on(hold))

    assert store.raw.hget(store.keys["holders"], "k") == b"b"
    store.check()
    store.reschedule("a", When("at", NOW_MS))
    shard_steps.hand_over()
    assert header(store) is None
    assert store.raw.hget(store.keys["holders"], "k") == b"b"


def test_so_does_one_whose_second_copy_was_followed_by_another_run_of_its_id(store, shard_steps):
    deliver(store, shard_steps)
    first = header(store)
    say(store, first)
    deliver(store, shard_steps)
    second = ends(store)

    schedule(store, "a", **going_on(first), supersede=True)

    assert ends(store) == second
    assert store.record("a") is not None
    store.check()


def test_the_cancel_of_a_task_that_goes_on_frees_its_key(store, shard_steps):
    schedule(store, "a", **going_on(deliver(store, shard_steps)))
    assert store.entries.cancel("a")[0] is Outcome.DONE
    assert is_free(store)


# Other ways out, and the relay.


@pytest.mark.parametrize("extras", [FINISHED, WINDOW])
def test_cancel_frees_it(store, extras):
    schedule(store, "a", extras=extras)
    store.entries.cancel("a")
    assert not store.raw.exists(store.keys["holders"], store.keys["held"])
    store.set_ms(NOW_MS + 1)
    assert is_free(store)


@pytest.mark.parametrize(("extras", "free"), [(FINISHED, True), (WINDOW, False)])
def test_a_skipped_task_has_ended_but_its_window_goes_on(store, shard_steps, extras, free):
    schedule(store, "a", NOW_MS - 5, Extras("k", grace_ms=1, hold=extras.hold))
    assert shard_steps.hand_over().skipped
    assert is_free(store) is free
    store.check()


@pytest.fixture
def claimed(store, shard_steps):
    store.schedule_relayed("a", extras=FINISHED, share=True)
    return shard_steps.claim(1).entries


@pytest.mark.usefixtures("claimed")
@pytest.mark.parametrize("conflict", ["", "keep"])
def test_a_task_being_published_holds_its_key(store, conflict):
    [answer] = schedule_many(store, conflict)
    if conflict == "keep":
        assert (answer.task_id, answer.existed) == ("a", True)
    else:
        assert type(answer) is KeyHeld
    store.check()


def test_the_relay_s_message_says_the_same_and_the_ack_holds_it(store, shard_steps, claimed):
    [entry] = claimed
    store.set_ms(NOW_MS + 5)
    shard_steps.ack(claimed)
    assert ends(store) == END_MS + 5
    assert say(store, entry.hold) is None
    store.check()


@pytest.mark.usefixtures("claimed")
def test_a_run_that_schedules_its_own_id_before_the_ack_holds_it_against_that(store):
    [error] = schedule_many(store, "", task_id="a", supersede=True)
    assert (type(error), error.holder) == (KeyHeld, "a")
    [receipt] = schedule_many(store, "keep", task_id="a", supersede=True, revokes="all")
    assert (receipt.task_id, receipt.existed, receipt.cancelled) == ("a", True, ())
    store.check()


@pytest.mark.parametrize("extras", [FINISHED, WINDOW, Extras("l"), Extras()])
def test_its_successor_waits_until_the_run_ends_whatever_the_scanner_learns(
    store, shard_steps, claimed, extras
):
    [entry] = claimed
    [receipt] = schedule_many(store, "replace", extras, task_id="a", supersede=True)
    assert receipt.task_id == "a"
    store.check()
    shard_steps.ack(claimed)
    assert ends(store) == END_MS
    assert not is_free(store)
    assert store.entries.find("a").behind == ("a" if extras.key == "k" else "")

    say(store, entry.hold)
    store.check()
    assert store.entries.find("a").behind == ""
    assert is_free(store) is (extras.key != "k")


def test_its_retry_before_the_ack_takes_it_along(store, shard_steps, claimed):
    [entry] = claimed
    schedule(store, "a", **going_on(entry.hold), supersede=True)
    shard_steps.ack(claimed)
    assert ends(store) is None
    assert store.raw.hget(store.keys["holders"], "k") == b"a"
    store.check()


def test_its_successor_has_it_if_the_run_s_other_copy_has_freed_it(store, shard_steps, claimed):
    [entry] = claimed
    say(store, entry.hold)
    schedule_many(store, "replace", task_id="a", supersede=True)
    assert store.raw.hget(store.keys["holders"], "k") == b"a"
    say(store, entry.hold)
    shard_steps.ack(claimed)
    assert store.raw.hget(store.keys["holders"], "k") == b"a"
    store.check()


def test_a_run_that_ends_before_the_ack_frees_it_for_good(store, shard_steps, claimed):
    [entry] = claimed
    say(store, entry.hold)
    assert is_free(store)
    shard_steps.ack(claimed)
    assert ends(store) is None
    store.check()


def test_a_run_that_ends_before_the_lease_runs_out_does_not_free_what_waits_again(
    store, shard_steps, claimed
):
    [entry] = claimed
    store.set_ms(NOW_MS + 6 * SECOND)
    shard_steps.reclaim()
    say(store, entry.hold)
    assert not is_free(store)
    store.check()


def test_a_task_that_may_run_already_keeps_its_key(store, shard_steps, claimed):
    shard_steps.nack("unknown", claimed)
    [error] = schedule_many(store, "")
    assert type(error) is KeyHeld
    shard_steps.ack(shard_steps.claim(1).entries)
    assert ends(store) == END_MS


def test_a_task_that_certainly_does_not_run_is_replaced(store, shard_steps, claimed):
    shard_steps.nack("unsent", claimed)
    [receipt] = schedule_many(store, "replace")
    assert receipt.task_id == "new"
    store.check()


def test_a_dead_one_gives_way(store, shard_steps, claimed):
    shard_steps.nack("dead", claimed, reason="no")
    assert is_free(store)
    store.check()


@pytest.mark.parametrize("task_id", ["new", "a"])
def test_a_dead_one_that_may_run_gives_way_to_its_successor_too(
    store, shard_steps, claimed, task_id
):
    shard_steps.nack("dead", claimed, reason="no", uncertain=True)
    schedule_many(store, "", task_id=task_id, supersede=task_id == "a")
    assert store.places(task_id) == ["due"]
    assert store.raw.hget(store.keys["holders"], "k") == task_id.encode()
    store.check()


@pytest.mark.parametrize("extras", [FINISHED, Extras("k"), Extras("k", ("tag",), 5)])
@pytest.mark.parametrize("back", ["retry", "reclaim"])
def test_a_task_that_comes_back_has_no_key_if_another_one_holds_it(
    store, shard_steps, extras, back
):
    store.schedule_relayed("a", extras=extras, share=True)
    claimed = shard_steps.claim(1).entries
    if back == "retry":
        shard_steps.nack("dead", claimed, reason="no")
    elif extras.hold:
        return  # the other one would wait behind it
    hold = deliver(store, shard_steps, "b")
    if back == "retry":
        store.reschedule("a", When("at", FAR_MS), mode="retry")
    else:
        store.set_ms(NOW_MS + 6 * SECOND)
        shard_steps.reclaim()
    assert store.entries.find("a").extras == replace(extras, key="", hold="")
    assert ends(store) == END_MS
    store.check()

    say(store, hold)
    store.check()
    assert is_free(store)
    store.check()


# Windows.


def test_a_window_counts_from_scheduling(store, shard_steps):
    schedule(store, "a", NOW_MS + 10 * SECOND, WINDOW)
    store.set_ms(NOW_MS + 10 * SECOND)
    shard_steps.hand_over()
    assert ends(store) == END_MS

    store.set_ms(END_MS - 1)
    assert not is_free(store, extras=WINDOW)
    store.set_ms(END_MS)
    assert is_free(store, extras=WINDOW)


def test_a_task_that_waits_longer_than_its_window_holds_its_key_until_it_leaves(store, shard_steps):
    schedule(store, "a", END_MS + 5, WINDOW)
    store.set_ms(END_MS + 4)
    assert not is_free(store)
    store.set_ms(END_MS + 5)
    shard_steps.hand_over()
    assert is_free(store)


@pytest.mark.parametrize("conflict", ["replace", "latest", "debounce"])
@pytest.mark.parametrize("task_id", ["a", "b"])
def test_a_replacement_keeps_the_end_of_the_first_window(store, shard_steps, conflict, task_id):
    schedule(store, "a", NOW_MS + 1, WINDOW)
    store.set_ms(NOW_MS + 30 * SECOND)
    schedule(store, task_id, NOW_MS + 30 * SECOND, WINDOW, conflict=conflict)
    shard_steps.hand_over()
    assert ends(store) == END_MS
    store.check()


# Ids that are scheduled anew.


def test_the_key_of_one_that_was_replaced_by_its_own_id_is_free(store):
    schedule(store, "a")
    schedule(store, "a", extras=Extras("other"), conflict="replace")
    assert is_free(store)


def test_in_flight_is_still_told(store, claimed):
    [error] = schedule_many(store, "replace", task_id="a")
    assert type(error) is InFlight
