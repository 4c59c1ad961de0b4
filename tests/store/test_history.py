"""The history: the last events, up to its limit, the newest first."""

import itertools
from collections import Counter
from dataclasses import replace

import pytest

from celery_delayq.core.clock import When
from celery_delayq.core.hooks import part_of
from celery_delayq.core.store import NewEntry, What
from celery_delayq.core.store.changes import Removal
from celery_delayq.core.store.membership import Registration
from celery_delayq.core.store.record import Extras, header_for, label_of
from tests.operations.restricted import RestrictedStore, documented
from tests.store.support import FAR_MS, NOW_MS, ROUTE, new_record

pytestmark = pytest.mark.core

LIST = header_for("L", "celery")
END = "this-is-all"


def with_history(store, length=5, *, repeats=True):
    """Let the processes of the store have a history."""
    store.set(history=length, history_repeats=repeats)
    store.entries.join()
    return store


def told(store, limit=10_000):
    return [(one.what.value, one.task_id) for one in store.entries.history(limit)]


def keyed(store, task_id, key, due_ms=FAR_MS, conflict="replace"):
    record = new_record(task_id, LIST).with_extras(Extras(key))
    store.entries.schedule([NewEntry(task_id, When("at", due_ms), record, conflict)])


def test_the_history_has_what_happened_the_newest_first(store):
    with_history(store, 100)
    store.schedule("cancelled", FAR_MS)
    store.schedule("list")
    store.schedule_relayed("acked")
    store.schedule_relayed("dead")
    store.entries.change("cancelled", Removal())
    store.steps().hand_over()
    store.take("left", "acked")
    store.take("dead", "dead")
    ids = ["dead", "acked", "list", "cancelled"]
    what = ["dead", "handed_over", "handed_over", "cancelled"]
    scheduled = [("scheduled", task_id) for task_id in ids]
    assert told(store) == [*zip(what, ids, strict=True), *scheduled]


def test_an_event_says_when_what_was_due_when_and_whose_it_is(store):
    with_history(store)
    keyed(store, "a", "ké")
    store.set_ms(NOW_MS + 7)
    store.entries.change("a", Removal())
    events = store.entries.history(5)
    assert [(one.what, one.when_ms, one.due_ms) for one in events] == [
        (What.CANCELLED, NOW_MS + 7, FAR_MS),
        (What.SCHEDULED, NOW_MS, FAR_MS),
    ]
    labels = (label_of("tests.remind"), label_of("celery"))
    assert [(one.task_id, one.key, one.labels) for one in events] == [("a", "ké", labels)] * 2


def test_the_history_has_a_replaced_entry_before_its_replacement(store):
    with_history(store)
    for task_id, due_ms in (("a", FAR_MS), ("b", FAR_MS), ("b", FAR_MS + 1)):
        keyed(store, task_id, "k", due_ms)
    what = ["scheduled", "replaced", "scheduled", "replaced", "scheduled"]
    assert told(store) == [*zip(what, "bbbaa", strict=True)]


def test_a_refused_call_is_not_told(store):
    with_history(store)
    keyed(store, "a", "k")
    keyed(store, "b", "k", conflict="keep")
    keyed(store, "c", "k", conflict="")
    store.entries.change("nobody", Removal())
    assert told(store) == [("scheduled", "a")]


@pytest.mark.parametrize("to", [LIST, header_for("R", ROUTE)], ids=["list", "relayed"])
def test_a_late_entry_is_recorded_as_skipped_and_no_other_event_is_lost(store, to):
    with_history(store)
    for task_id in ("unreadable", "late"):
        record = new_record(task_id, to).with_extras(Extras(grace_ms=0))
        store.put(task_id, record, NOW_MS)
    store.raw.hset(store.keys["records"], "unreadable", "9")
    store.set_ms(NOW_MS + 1)
    shard_steps = store.steps()
    shard_steps.hand_over()
    shard_steps.claim(5)
    assert set(told(store)[:2]) == {("skipped", "late"), ("dead", "unreadable")}


@pytest.mark.parametrize("kind", ["schedule", "schedule_relayed"])
def test_an_unreadable_entry_is_recorded_as_dead(store, kind):
    with_history(store)
    getattr(store, kind)("a")
    store.raw.hset(store.keys["records"], "a", "9")
    shard_steps = store.steps()
    shard_steps.hand_over()
    shard_steps.claim(1)
    event, _ = store.entries.history(5)
    assert (event.what, event.task_id, event.due_ms, event.labels) == (What.DEAD, "a", None, None)


def test_an_event_that_somebody_else_wrote_is_left_out(store):
    with_history(store)
    store.schedule("a", FAR_MS)
    store.raw.lpush(store.keys["history"], "", "x", "s" + "x" * 60, "é")
    assert told(store) == [("scheduled", "a")]


def test_a_batch_is_one_push_and_one_trim_of_no_more_than_the_history_has(store):
    with_history(store, 3)
    for number in range(10):
        store.schedule(f"a{number}", NOW_MS + number)
    store.set_ms(NOW_MS + 100)
    store.raw.config_resetstat()
    store.steps().hand_over()
    assert told(store) == [("handed_over", f"a{number}") for number in (9, 8, 7)]
    called = store.raw.info("commandstats")
    assert called["cmdstat_ltrim"]["calls"] == 1
    assert called["cmdstat_lpush"]["calls"] == 2  # the queue's list, and this one
    assert store.raw.llen(store.keys["history"]) == 3


def test_a_bulk_that_goes_on_has_its_line_first_and_pushes_no_other_bulk_out(store):
    with_history(store, 3)
    for number, bulk in enumerate(["x", "y", "z", "x", "z", "x"]):
        store.schedule(f"a{number}", FAR_MS)
        with part_of(bulk):
            store.entries.change(f"a{number}", Removal())
    lines = store.raw.lrange(store.keys["history_changes"], 0, -1)
    assert [line.rpartition(b"\0")[2] for line in lines] == [b"x", b"z", b"y"]
    events = store.entries.history(changes=3)
    assert {event.bulk: event.count for event in events} == {"x": 3, "y": 1, "z": 2}


@pytest.mark.parametrize("length", [1, 2, 7])
def test_the_history_is_as_long_as_it_may_be_and_no_longer(store, length):
    with_history(store, length)
    for number in range(10):
        store.schedule(f"a{number}", FAR_MS)
        assert store.raw.llen(store.keys["history"]) == min(number + 1, length)
    assert told(store) == [("scheduled", f"a{number}") for number in range(9, 9 - length, -1)]
    assert told(store, 1) == [("scheduled", "a9")]


def test_the_last_process_that_joins_decides_how_long_the_history_is(store):
    with_history(store, 9)
    for number in range(9):
        store.schedule(f"a{number}", FAR_MS)
    for length, kept in ((4, 4), (9, 4), (0, 0), (9, 0), (0, 0)):
        with_history(store, length)
        assert store.raw.llen(store.keys["history"]) == kept
    assert store.raw.hget(store.keys["meta"], "history") is None
    store.schedule("b", FAR_MS)
    assert told(store) == []


def test_a_process_that_joins_with_the_same_setting_changes_nothing(store):
    with_history(store, 9)
    store.schedule("a", FAR_MS)
    before = store.contents(all_keys=True)
    Registration(store.scripts, store.membership).join()
    assert store.contents(all_keys=True) == before


# Off.


def take_every_step(store):
    store.schedule("list")
    store.schedule("cancelled", FAR_MS)
    store.schedule_relayed("acked")
    store.schedule_relayed("back", NOW_MS + 1)
    store.set_ms(NOW_MS + 2)
    store.entries.change("cancelled", Removal())
    shard_steps = store.steps()
    shard_steps.hand_over()
    acked, back = shard_steps.claim(2)[0]
    shard_steps.ack([acked])
    shard_steps.nack("unsent", [back])


def commands(store):
    """The commands that Redis gets while every step runs that adds an event."""
    with store.raw.monitor() as monitor:
        take_every_step(store)
        store.raw.echo(END)
        found = (one["command"] for one in monitor.listen())
        return list(itertools.takewhile(lambda one: one != f"ECHO {END}", found))


def of_history(store):
    """The commands about the history, without the calls of scripts."""
    found = [one.split()[0].upper() for one in commands(store) if "history" in one]
    return Counter(name for name in found if not name.startswith("EVAL"))


def test_where_there_is_no_history_no_step_takes_a_command_for_it(store):
    store.entries.join()
    # Its setting is one more field of a read that is made anyway; a joining scanner reads its type.
    assert of_history(store).keys() == {"HMGET", "LRANGE"}
    assert not store.raw.exists(store.keys["history"])


def test_where_there_is_a_history_each_step_takes_two_commands(store):
    with_history(store)
    found = of_history(store)
    # Four calls of schedule, a cancel, a hand-over and an ack.
    assert (found["LPUSH"], found["LTRIM"]) == (7, 7)
    assert found.keys() == {"HMGET", "LRANGE", "LPUSH", "LTRIM"}


# No repeats.


def test_an_event_that_equals_the_one_before_is_left_out(store):
    with_history(store, 9, repeats=False)
    keyed(store, "a", "k", conflict="")
    store.raw.delete(store.keys["records"], store.keys["holders"], store.keys["due"])
    keyed(store, "b", "k", conflict="")
    assert told(store) == [("scheduled", "a")]
    store.schedule("a", FAR_MS)
    assert told(store) == [("scheduled", "a"), ("scheduled", "a")], "events without a key differ"
    store.entries.change("a", Removal())
    store.schedule("a", FAR_MS)
    assert [what for what, _ in told(store)] == ["scheduled", "cancelled", "scheduled", "scheduled"]


def test_an_event_is_not_twice_in_a_row_within_a_batch(store):
    with_history(store, 9, repeats=False)
    new = [
        NewEntry(task_id, When("at", NOW_MS), new_record(task_id, LIST).with_extras(Extras(key)))
        for task_id, key in (("a", "k"), ("b", "l"), ("c", ""), ("d", ""))
    ]
    store.entries.schedule(new)
    # As if one had left, and another had taken its key while both were due.
    text = store.record("b").replace(b"l\0\0", b"k\0\0")
    store.raw.hset(store.keys["records"], "b", text)
    store.steps().hand_over()
    assert told(store)[:3] == [("handed_over", "d"), ("handed_over", "c"), ("handed_over", "a")]


def test_of_another_task_the_same_key_is_another_event(store):
    with_history(store, 9, repeats=False)
    keyed(store, "a", "k", conflict="")
    store.raw.delete(store.keys["records"], store.keys["holders"], store.keys["due"])
    record = new_record("b", LIST)
    record = replace(record, labels=record.labels[:1] + b"another task")
    record = record.with_extras(Extras("k"))
    store.entries.schedule([NewEntry("b", When("at", FAR_MS), record)])
    assert told(store) == [("scheduled", "b"), ("scheduled", "a")]


# Nothing fails because of it.


def test_where_something_foreign_is_in_the_history_s_place_a_step_is_done(store):
    shard_steps = with_history(store).steps()
    shard_steps.hand_over()
    store.schedule("a")
    store.raw.delete(store.keys["history"])
    store.raw.set(store.keys["history"], "somebody's")
    assert shard_steps.hand_over().handed_over == 1
    assert store.raw.get(store.keys["history"]) == b"somebody's"


@pytest.mark.parametrize(("missing", "length"), [("ltrim", 0), ("lpush", 0), ("lrange", 2)])
def test_without_a_right_the_history_gets_no_longer_than_it_may(redis_server, missing, length):
    redis_server.client().flushall()
    store = with_history(RestrictedStore(redis_server, documented()), 2, repeats=False)
    store.allow(f"-{missing}")
    for number in range(5):
        store.schedule(f"a{number}", FAR_MS)
    assert store.raw.llen(store.keys["history"]) == length
    store.close()
