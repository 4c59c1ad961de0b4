"""`unique_until` and `unique_for`: how a key is held, the task that holds it, and one behind it."""

import json

import pytest
from celery import chain, group

from celery_delayq import Item, Outcome
from celery_delayq.core.clock import from_ms
from celery_delayq.core.store import State
from celery_delayq.errors import InvalidOption, KeyHeld
from tests.app.conftest import app_with_results as app
from tests.app.support import FAR, LONG_AGO, noop
from tests.support.shards import keys_of

__all__ = ["app"]

UNTIL = {"key": "k", "unique_until": "finished"}


def hold(delayq):
    """The key of the only entry, and how it holds."""
    [task] = delayq.tasks()
    extras = delayq.services.entries.find(task.id).extras
    return extras.key, extras.hold


def test_each_item_of_a_bulk_may_have_its_own(add, delayq):
    keys = [Item((n,), key=f"k{n}", unique_until="finished", unique_for=n + 1) for n in range(4)]
    bulk = delayq.schedule_many(add, keys, at=FAR)
    holds = [delayq.services.entries.find(one).extras.hold for one in bulk.ids]
    assert holds == ["f1000", "f2000", "f3000", "f4000"]


def test_a_task_s_attributes_are_the_defaults_of_calls_with_a_key(app, delayq):
    synced = app.task(name="synced", delayq_unique_until="finished", delayq_unique_for=5)(noop)

    delayq.schedule(synced.s(), at=FAR).cancel()
    delayq.schedule(synced.s(), at=FAR, key="k")

    assert hold(delayq) == ("k", "f5000")


@pytest.mark.parametrize("canvas", [group, chain])
def test_a_canvas_has_no_key_until_it_finishes(add, delayq, redis, canvas):
    with pytest.raises(InvalidOption) as caught:
        delayq.schedule(canvas([add.s(1), add.s(2)]), at=FAR, **UNTIL)
    assert str(caught.value) == (
        "delayq_unique_until is 'finished'; expected a plain task: the parts of a canvas end one "
        "by one"
    )
    assert redis.keys() == []


def test_a_canvas_may_have_a_window(add, delayq):
    delayq.schedule(group([add.s(1)]), at=FAR, key="k", unique_for=5)
    assert hold(delayq) == ("k", "w5000")


# The task that holds it after its delivery.


@pytest.fixture
def running(add, delayq):
    result = delayq.schedule(add.s(1), at=LONG_AGO, **UNTIL)
    assert delayq.hand_over() == 1
    return result


def test_another_task_is_refused_and_names_it_or_gets_its_result(add, delayq, running):
    with pytest.raises(KeyHeld) as caught:
        delayq.schedule(add.s(2), at=FAR, key="k")
    assert caught.value.holder == running.id
    assert caught.value.until == delayq.holder(key="k").until

    kept = delayq.schedule(add.s(2), at=FAR, key="k", conflict="keep")
    assert (kept.id, kept.existed) == (running.id, True)
    assert list(delayq.tasks()) == []


def test_a_dump_has_how_keys_hold(delayq_app, url, add, delayq):
    delayq.schedule(add.s(1), at=FAR, key="k", unique_until="finished", unique_for=5)
    delayq.schedule(add.s(2), at=FAR, key="l", unique_for=7)
    lines = [*delayq.dump()]
    told = {(one["key"], one["unique_ms"], one.get("until_finished")) for one in lines[1:-1]}
    assert told == {("k", 5000, True), ("l", 7000, None)}

    two = delayq_app(url, delayq_prefix="two").delayq
    assert two.load(lines).loaded == 2

    found = {two.services.entries.find(task.id).extras.hold for task in two.tasks()}
    assert found == {"f5000", "w7000"}


# A task behind it.


@pytest.fixture
def second(add, delayq, running):
    return delayq.schedule(add.s(2), at=FAR, conflict="replace", **UNTIL)


def test_a_key_shows_the_task_behind_and_the_one_that_runs(delayq, running, second):
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


def test_a_task_behind_one_that_waits_itself_has_no_end_of_that(delayq, redis, running, second):
    redis.hset(keys_of("k")["holders"], "k", "first")
    task = delayq.get(second.id)
    assert (task.behind, task.behind_until) == ("first", None)
    assert "behind_until" not in task.facts()


def test_a_task_behind_no_other_has_no_fact_of_it(add, delayq):
    delayq.schedule(add.s(2), at=FAR, key="other")
    [task] = delayq.tasks()
    assert task.behind == ""
    assert "behind" not in task.facts()


def test_calls_by_key_are_about_the_task_behind(delayq, running, second):
    assert delayq.edit(key="k", args=(5,)) is Outcome.DONE
    assert delayq.run_now(key="k") is Outcome.BEHIND
    assert delayq.hand_over() == 0
    assert delayq.get(key="k").args == (5,)
    assert delayq.cancel(key="k") is Outcome.DONE
    assert second.state == "REVOKED"
    assert delayq.get(key="k") is None
    assert running.cancel() is Outcome.HANDED_OVER


def test_a_dump_has_the_task_behind_and_a_load_keeps_it_under_its_key(
    delayq_app, url, delayq, second
):
    _, line, _ = lines = [*delayq.dump()]
    assert (line["id"], line["state"]) == (second.id, "behind")

    two = delayq_app(url, delayq_prefix="two").delayq
    assert two.load(lines).loaded == 1
    assert two.load(lines).here == 1

    task = two.get(key="k")
    assert (task.id, task.behind) == (second.id, "")
    assert [*two.check()] == []


def test_a_line_without_a_key_waits_behind_nothing(delayq, second):
    head, line, end = delayq.dump()
    del line["key"], line["unique_ms"], line["until_finished"]
    assert delayq.load([head, {**line, "id": "b"}, end]).loaded == 1
    assert delayq.get("b").behind == ""
    assert delayq.counts().refused == 0
    assert [*delayq.check()] == []
