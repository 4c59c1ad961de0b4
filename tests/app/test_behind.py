"""A task that waits behind the one that runs under its key, as users see it."""

import json
from datetime import timedelta

import pytest

from celery_delayq import Item, Outcome
from celery_delayq.core import clock
from celery_delayq.core.clock import from_ms
from celery_delayq.core.store import State
from celery_delayq.errors import KeyHeld
from tests.app.support import FAR, LONG_AGO
from tests.support.shards import keys_of
from tests.support.waiting import PATIENCE

FINISHED = {"key": "k", "unique_until": "finished"}


@pytest.fixture
def app(app_with_results):
    return app_with_results


@pytest.fixture
def running(add, delayq):
    result = delayq.schedule(add.s(1), at=LONG_AGO, **FINISHED)
    assert delayq.hand_over() == 1
    return result


@pytest.fixture
def second(add, delayq, running):
    return delayq.schedule(add.s(2), at=FAR, conflict="replace", **FINISHED)


def finish(delayq, redis, running):
    """Say what the worker says when the run has ended."""
    row = redis.hget(keys_of("k")["holders"], "k")
    delivery = row.partition(b"\xff")[2].decode()
    delayq.services.entries.hold([(running.id, "k", delivery, 0, 0)], clock.monotonic() + PATIENCE)


def test_the_key_shows_it_and_the_one_that_runs(delayq, running, second):
    assert not second.existed
    task = delayq.get(key="k")
    assert (task.id, task.behind, task.state) == (second.id, running.id, State.SCHEDULED)
    assert task.facts()["behind"] == running.id
    assert json.loads(json.dumps(task.facts()))["key"] == "k"
    assert [one.behind for one in delayq.tasks()] == [running.id]
    assert [one.behind for one in delayq.select(state="SCHEDULED")] == [running.id]


def test_each_read_has_the_end_of_the_time_for_which_its_key_is_held(
    delayq, redis, running, second
):
    ends = from_ms(int(redis.zscore(keys_of("k")["held"], "k")))
    assert delayq.holder(key="k").until == ends
    for task in (delayq.get(key="k"), *delayq.tasks(), *delayq.select(all=True)):
        assert task.behind_until == ends
    assert delayq.get(second.id).facts()["behind_until"] == ends.isoformat()


def test_behind_a_task_that_waits_itself_there_is_no_such_end(delayq, redis, running, second):
    redis.hset(keys_of("k")["holders"], "k", "first")
    task = delayq.get(second.id)
    assert (task.behind, task.behind_until) == ("first", None)
    assert "behind_until" not in task.facts()


def test_the_others_do_not_say_so(add, delayq):
    delayq.schedule(add.s(2), at=FAR, key="other")
    [task] = delayq.tasks()
    assert task.behind == ""
    assert "behind" not in task.facts()


def test_only_one_waits_and_the_other_is_revoked(add, delayq, second):
    third = delayq.schedule(add.s(3), at=FAR, conflict="debounce", **FINISHED)
    assert delayq.get(key="k").id == third.id
    assert second.state == "REVOKED"
    assert delayq.get(second.id) is None


def test_a_bulk_keeps_its_last_item(add, delayq, running):
    items = [Item((n,), key="k", conflict="replace") for n in range(3)]
    bulk = delayq.schedule_many(add, items, at=FAR)
    assert not bulk.refused
    assert [task.args for task in delayq.tasks()] == [(2,)]
    assert delayq.get(key="k").behind == running.id


def test_calls_by_key_are_about_it(delayq, running, second):
    assert delayq.edit(key="k", args=(5,)) is Outcome.DONE
    assert delayq.run_now(key="k") is Outcome.BEHIND
    assert delayq.hand_over() == 0
    assert delayq.get(key="k").args == (5,)
    assert delayq.cancel(key="k") is Outcome.DONE
    assert second.state == "REVOKED"
    assert delayq.get(key="k") is None
    assert running.cancel() is Outcome.HANDED_OVER


def test_the_holder_still_refuses_others(add, delayq, running, second):
    with pytest.raises(KeyHeld) as caught:
        delayq.schedule(add.s(3), at=FAR, **FINISHED)
    assert caught.value.holder == running.id
    assert caught.value.until == delayq.holder(key="k").until
    assert "conflict='replace'" in str(caught.value)


def test_it_is_not_overdue_and_health_is_well(add, delayq, running):
    delayq.schedule(add.s(2), at=LONG_AGO, conflict="replace", **FINISHED)
    counts = delayq.counts()
    assert (counts.scheduled, counts.overdue) == (1, 0)
    assert not [one for one in delayq.health(max_overdue=0) if "overdue" in one]
    [queue] = delayq.status().queues
    assert (queue.waiting, queue.overdue) == (1, 0)


def test_a_selection_changes_it_in_its_place(add, delayq, running, second):
    chosen = delayq.select(all=True)
    assert int(chosen.reschedule(by=timedelta(days=-90000))) == 1
    assert delayq.hand_over() == 0
    assert delayq.get(key="k").behind == running.id
    ran = chosen.run_now()
    assert (int(ran), ran.behind) == (1, 1)
    assert int(chosen.edit(add_tags=["new"])) == 1
    assert int(delayq.select(tag="new").cancel()) == 1
    assert delayq.get(key="k") is None


def test_it_leaves_once_the_run_has_ended(add, delayq, redis, running):
    delayq.schedule(add.s(2), at=LONG_AGO, conflict="replace", **FINISHED)
    finish(delayq, redis, running)
    assert delayq.get(key="k").behind == ""
    assert delayq.hand_over() == 1


# Dumps.


def test_a_dump_has_it_and_a_load_keeps_it_behind(delayq_app, url, delayq, second):
    lines = [*delayq.dump()]
    [line] = [one for one in lines if one["kind"] == "task"]
    assert (line["id"], line["state"]) == (second.id, "behind")

    two = delayq_app(url, delayq_prefix="two").delayq
    assert two.load(lines).loaded == 1
    assert two.load(lines).here == 1

    task = two.get(key="k")
    assert (task.id, task.behind) == (second.id, "")
    assert [*two.check()] == []


def test_a_load_puts_it_behind_the_holder_that_is_here(add, delayq, running, second):
    lines = [*delayq.dump()]
    delayq.cancel(second.id)
    [line] = [one for one in lines if one["kind"] == "task"]
    others = [{**line, "id": "b"}, {**line, "id": "c"}]
    loaded = delayq.load([lines[0], *others, {**lines[-1], "tasks": 2}])
    assert loaded.loaded == 1
    assert delayq.get(key="k").id == "b"
    [error] = loaded.refused
    assert (error.task_id, error.why) == ("c", "task 'b' has its unique key here")


def test_a_line_without_a_key_waits_behind_nothing(delayq, second):
    lines = [*delayq.dump()]
    [line] = [one for one in lines if one["kind"] == "task"]
    del line["key"], line["unique_ms"], line["until_finished"]
    assert delayq.load([lines[0], {**line, "id": "b"}, lines[-1]]).loaded == 1
    assert delayq.get("b").behind == ""
    assert delayq.counts().refused == 0
    assert [*delayq.check()] == []
