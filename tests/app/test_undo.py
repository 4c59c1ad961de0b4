"""`delayq.undo`: a cancelled task waits again, as it was, and its result is not REVOKED."""

import pytest
from celery import chord, group
from kombu import Exchange, Queue

from celery_delayq import Outcome, signals
from celery_delayq.contrib.undo import undoing
from celery_delayq.core.tasks import selection as selections
from celery_delayq.errors import InvalidOption, NotUndone
from tests.app.support import FAR, LONG_AGO, claim, redis_ms
from tests.support.shards import each, total
from tests.support.waiting import eventually

DAY = (86_400, 1000)
ELSEWHERE = Queue("q", Exchange("x", type="topic"), routing_key="#")


@pytest.fixture
def app(app_with_results):
    app_with_results.conf.delayq_undo = DAY
    return app_with_results


def refusal(delayq, task_id, **options):
    with pytest.raises(NotUndone) as caught:
        delayq.undo(task_id, **options)
    return caught.value.reason, caught.value.detail


def state(app, task_id):
    """As a new result reads it: one that has read REVOKED keeps that."""
    return app.AsyncResult(task_id).state


@pytest.mark.libraries
@pytest.mark.parametrize("named", [str, lambda result: result])
def test_a_cancelled_task_waits_again_as_it_was(app, add, delayq, named):
    options = {"delayq_key": "k", "delayq_tags": ["x"], "priority": 3}
    options |= {"delayq_late": "skip", "delayq_grace": 60}
    result = add.s(1, 2).set(task_id="a", **options).delay_until(FAR)
    before = delayq.get("a").facts()
    delayq.cancel("a")
    assert state(app, "a") == "REVOKED"

    due = delayq.undo(named(result) if named is not str else "a")

    assert due.timestamp() == FAR
    after = delayq.get("a").facts()
    differs = {name for name in before if before[name] != after[name]}
    assert differs <= {"revision", "changed", "cursor"}
    assert state(app, "a") == "SCHEDULED"
    assert app.backend.get_task_meta("a", cache=False)["status"] == "PENDING"
    assert [*delayq.check()] == []


def test_it_runs_when_it_is_due(app, add, delayq, redis):
    add.s(1).set(task_id="a").delay_until(redis_ms(redis) / 1000 + 3600)
    delayq.cancel("a")
    delayq.undo("a")
    delayq.run_now("a")
    assert delayq.hand_over() == 1


def test_by_default_nothing_is_kept(app, add, delayq, redis):
    app.conf.delayq_undo = 0
    add.s(1).set(task_id="a").delay_until(FAR)
    delayq.cancel("a")
    assert refusal(delayq, "a") == ("unknown", "")
    assert total(redis.exists, "undo") == 0


def test_each_refusal_has_its_reason(app, add, delayq, redis):
    assert refusal(delayq, "nobody") == ("unknown", "")
    add.s(1).set(task_id="a", delayq_key="k").delay_until(FAR)
    assert refusal(delayq, "a") == ("waits", "")
    delayq.cancel("a")
    delayq.undo("a")
    assert refusal(delayq, "a") == ("waits", "")
    delayq.cancel("a")
    add.s(1).set(task_id="b", delayq_key="k").delay_until(FAR)
    assert refusal(delayq, "a") == ("held", "b")
    assert delayq.get("b").id == "b"


def test_an_id_that_waits_again_on_another_shard_is_not_doubled(app, add, delayq):
    add.s(1).set(task_id="a", delayq_key="k").delay_until(FAR)
    delayq.cancel("a")
    add.s(2).set(task_id="a", delayq_key="another").delay_until(FAR)

    assert refusal(delayq, "a")[0] in ("waits", "taken")

    assert [(task.id, task.key) for task in delayq.tasks()] == [("a", "another")]


def test_a_task_whose_due_time_is_over_comes_back_only_with_now(app, add, delayq, redis):
    soon = redis_ms(redis) / 1000 + 0.2
    add.s(1).set(task_id="a").delay_until(soon)
    delayq.cancel("a")
    eventually(lambda: redis_ms(redis) > soon * 1000 + 1)

    reason, detail = refusal(delayq, "a")
    assert (reason, detail[-6:]) == ("overdue", "+00:00")
    assert delayq.undo("a", now=True).timestamp() > soon

    assert delayq.hand_over() == 1


def test_a_wrong_id_is_refused_before_anything_is_asked(delayq):
    with pytest.raises(InvalidOption, match="task_id is 5; expected text"):
        delayq.undo(5)
    with pytest.raises(InvalidOption, match=r"use select\(tag='x'\)"):
        delayq.undo(tag="x")


# Tasks that workers were to drop.


def test_a_task_being_published_still_waits(app, delayq):
    app.send_task("t", task_id="a", queue=ELSEWHERE, delayq_at=LONG_AGO)
    claim(delayq)
    assert delayq.cancel("a", revoke=True) is Outcome.IN_FLIGHT
    assert refusal(delayq, "a")[0] == "waits"


@pytest.mark.parametrize(
    "revoke",
    [
        lambda app: app.delayq.cancel("a", revoke=True),
        lambda app: app.control.revoke("a"),
        lambda app: app.control.revoke(["b", "a"]),
    ],
)
def test_a_revoked_task_that_a_worker_may_have_does_not_come_back(app, delayq, redis, revoke):
    app.send_task("t", task_id="a", queue=ELSEWHERE, delayq_at=LONG_AGO)
    claim(delayq)
    for leased in each("leased"):
        for member in redis.zrange(leased, 0, -1):
            redis.zadd(leased, {member: 1})  # it has run out

    revoke(app)

    assert delayq.get("a") is None
    assert refusal(delayq, "a", now=True) == ("revoked", "")


def test_a_revoke_of_a_cancelled_id_later_tells_the_workers_and_is_noted(app, add, delayq, redis):
    add.s(1).set(task_id="a").delay_until(FAR)
    delayq.cancel("a")
    for stones in each("tombstones"):
        redis.delete(stones)  # as after some time

    app.control.revoke("a")

    assert refusal(delayq, "a") == ("revoked", "")


def test_celery_s_revoke_of_a_waiting_task_is_undone(app, add, delayq):
    add.s(1).set(task_id="a").delay_until(FAR)
    app.control.revoke("a")
    assert delayq.undo("a").timestamp() == FAR


# Results.


def test_a_result_that_came_after_all_stays(app, add, delayq):
    add.s(1).set(task_id="a").delay_until(FAR)
    delayq.cancel("a")
    app.backend.store_result("a", 5, "SUCCESS")
    delayq.undo("a")
    assert app.backend.get_result("a") == 5


def test_of_a_canvas_no_part_is_revoked_any_more(app, add, delayq):
    result = group(add.s(1), add.s(2)).delay_until(FAR)
    result.cancel()
    parts = [part.id for part in result.children]
    assert {state(app, part) for part in parts} == {"REVOKED"}

    delayq.undo(result.id)

    assert {app.backend.get_task_meta(part, cache=False)["status"] for part in parts} == {"PENDING"}
    assert delayq.get(result.id).is_canvas


def test_a_chord_comes_back_whole(app, add, delayq):
    result = chord([add.s(1), add.s(2)], add.si(3)).delay_until(FAR)
    result.cancel()
    delayq.undo(result.id)
    assert app.backend.get_task_meta(result.id, cache=False)["status"] == "PENDING"
    assert delayq.counts().scheduled == 1


# Many.


@pytest.fixture
def many(app, add):
    for number in range(120):
        options = {"task_id": f"a{number}", "delayq_tags": ["x"]}
        add.s(number).set(**options).delay_until(FAR + number)


def test_a_whole_bulk_comes_back(app, many, delayq):
    count = delayq.select(tag="x").cancel()
    assert (count, delayq.counts().scheduled) == (120, 0)
    assert {task.bulk for task in delayq.undoable()} == {count.bulk}
    told = []

    undone = delayq.undo_all(count.bulk, progress=lambda so_far: told.append(so_far.done))

    assert (undone.done, undone.refused, bool(undone)) == (120, [], True)
    assert told[-1] == 120
    assert len(told) > 1
    assert delayq.counts().scheduled == 120
    assert delayq.select(tag="x").count() == 120
    assert delayq.undo_all(count.bulk).done == 0


def test_another_bulk_and_single_cancels_stay_cancelled(app, many, delayq):
    first = delayq.select(tag="x", limit=20).cancel()
    second = delayq.select(tag="x", limit=30).cancel()
    delayq.cancel("a119")
    assert first.bulk != second.bulk

    assert delayq.undo_all(second.bulk).done == 30

    assert delayq.counts().scheduled == 99
    assert {task.bulk for task in delayq.undoable()} == {first.bulk, ""}


def test_a_task_that_does_not_come_back_is_refused_with_its_reason(app, many, add, delayq):
    count = delayq.select(tag="x").cancel()
    add.s(1).set(task_id="a7").delay_until(FAR)

    undone = delayq.undo_all(count.bulk)

    assert (undone.done, [error.reason for error in undone.refused], bool(undone)) == (
        119,
        ["taken"],
        False,
    )


def test_a_bulk_goes_on_after_an_interruption(app, many, delayq, monkeypatch):
    monkeypatch.setattr(undoing, "CHUNK", 10)
    count = delayq.select(tag="x").cancel()

    def stop(undone):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        delayq.undo_all(count.bulk, progress=stop)

    assert delayq.undo_all(count.bulk).done == 110
    assert delayq.counts().scheduled == 120


def test_a_selection_that_goes_on_has_one_name_if_it_is_given_that(app, many, delayq, monkeypatch):
    monkeypatch.setattr(selections, "CHUNK", 10)
    selection = delayq.select(tag="x")

    def stop(count):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        selection.cancel(progress=stop)
    further = delayq.select(tag="x", cursor=selection.cursor)
    further.bulk = selection.bulk

    assert further.cancel().bulk == selection.bulk
    assert delayq.undo_all(selection.bulk).done == 120


def test_each_that_can_come_back_is_listed_once(app, add, delayq):
    app.conf.delayq_undo = (60, 1)  # so that each cancel begins another generation
    for _ in range(2):
        add.s(1).set(task_id="a").delay_until(FAR)
        delayq.cancel("a")
    assert [task.id for task in delayq.undoable()] == ["a"]
    add.s(1).set(task_id="b").delay_until(FAR)
    delayq.cancel("b")
    assert sorted(task.id for task in delayq.undoable()) == ["a", "b"]


def test_without_the_setting_a_count_has_no_bulk(app, many, delayq):
    app.conf.delayq_undo = 0
    assert delayq.select(tag="x").cancel().bulk == ""
    assert [*delayq.undoable()] == []


@pytest.mark.parametrize("wrong", ["", "a b", 5, None, "-", "x\n"])
def test_a_name_that_is_none_of_a_bulk_is_refused(delayq, wrong):
    with pytest.raises(InvalidOption, match="bulk"):
        delayq.undo_all(wrong)


# Signals, the history and other listeners.


def test_the_signal_of_an_undo_has_the_name_of_its_actor(app, add, delayq):
    heard = []

    def receiver(sender, signal, **facts):
        heard.append((sender, facts["task_id"], facts["due"].timestamp(), facts["actor"]))

    signals.task_undone.connect(receiver)
    try:
        add.s(1).set(task_id="a").delay_until(FAR)
        delayq.cancel("a")
        with delayq.acting("ann"):
            delayq.undo("a")
    finally:
        signals.task_undone.disconnect(receiver)
    assert heard == [(app, "a", FAR, "ann")]


def test_it_is_in_the_history(app, add, delayq):
    app.conf.delayq_history = 10
    add.s(1).set(task_id="a", delayq_key="k").delay_until(FAR)
    delayq.cancel("a")
    with delayq.acting("ann"):
        delayq.undo("a")
    event = delayq.history()[0]
    assert (event.what, event.id, event.key, event.actor) == ("undone", "a", "k", "ann")
    assert event.due.timestamp() == FAR
