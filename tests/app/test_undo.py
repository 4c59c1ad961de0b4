"""`delayq.undo`: a cancelled task waits again, as it was, and its result is not REVOKED."""

from datetime import datetime

import pytest
from celery import chord, group
from kombu import Exchange, Queue

from celery_delayq import Outcome, signals
from celery_delayq.errors import InvalidOption, NotUndone
from tests.app.support import FAR, fall_due_after_cancel
from tests.support.places import at, lease_out
from tests.support.shards import each, total

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
@pytest.mark.parametrize(
    "cancel",
    [lambda result: result.cancel(), lambda result: result.app.control.revoke("a")],
    ids=["cancel", "Celery's revoke"],
)
@pytest.mark.parametrize("name", [lambda _: "a", lambda result: result], ids=["id", "result"])
def test_a_cancelled_task_waits_again_as_it_was(app, add, delayq, name, cancel):
    options = {"delayq_key": "k", "delayq_tags": ["x"], "priority": 3}
    options |= {"delayq_late": "skip", "delayq_grace": 60}
    result = add.s(1, 2).set(task_id="a", **options).delay_until(FAR)
    before = delayq.get("a").facts()
    cancel(result)
    assert state(app, "a") == "REVOKED"

    assert delayq.undo(name(result)).timestamp() == FAR

    after = delayq.get("a").facts()
    differs = {name for name in before if before[name] != after[name]}
    assert differs <= {"revision", "changed", "cursor"}
    assert state(app, "a") == "SCHEDULED"
    assert app.backend.get_task_meta("a", cache=False)["status"] == "PENDING"
    assert [*delayq.check()] == []


def test_by_default_nothing_is_kept(app, add, delayq, redis):
    app.conf.delayq_undo = 0
    add.s(1).set(task_id="a").delay_until(FAR)
    assert delayq.select(all=True).cancel().bulk == ""
    assert refusal(delayq, "a") == ("unknown", "")
    assert [*delayq.undoable()] == []
    assert total(redis.exists, "undo") == 0


def test_each_refusal_has_its_reason(add, delayq):
    assert refusal(delayq, "nobody") == ("unknown", "")
    add.s(1).set(task_id="a", delayq_key="k").delay_until(FAR)
    assert refusal(delayq, "a") == ("waits", "")
    delayq.cancel("a")
    add.s(1).set(task_id="b", delayq_key="k").delay_until(FAR)
    assert refusal(delayq, "a") == ("held", "b")


def test_an_id_that_waits_again_on_another_shard_is_not_doubled(app, add, delayq):
    add.s(1).set(task_id="a", delayq_key="k").delay_until(FAR)
    delayq.cancel("a")
    add.s(2).set(task_id="a", delayq_key="another").delay_until(FAR)

    assert refusal(delayq, "a")[0] in ("waits", "taken")

    assert [(task.id, task.key) for task in delayq.tasks()] == [("a", "another")]


def test_a_task_whose_due_time_is_over_comes_back_only_with_now(app, add, delayq, redis):
    add.s(1).set(task_id="a").delay_until(FAR)
    delayq.cancel("a")
    fall_due_after_cancel(redis, "a")

    reason, detail = refusal(delayq, "a")
    assert (reason, detail[-6:]) == ("overdue", "+00:00")
    assert delayq.undo("a", now=True) >= datetime.fromisoformat(detail)

    assert delayq.hand_over() == 1


@pytest.mark.parametrize(
    ("undo", "words"),
    [
        (lambda delayq: delayq.undo(5), "task_id is 5; expected text"),
        (lambda delayq: delayq.undo(tag="x"), r"use select\(tag='x'\)"),
        (lambda delayq: delayq.undo_all(""), "bulk"),
        (lambda delayq: delayq.undo_all("a b"), "bulk"),
        (lambda delayq: delayq.undo_all("x\n"), "bulk"),
        (lambda delayq: delayq.undo_all("-"), "bulk"),
        (lambda delayq: delayq.undo_all(5), "bulk"),
        (lambda delayq: delayq.undo_all(None), "bulk"),
    ],
)
def test_a_wrong_id_or_bulk_is_refused_before_anything_is_asked(delayq, undo, words):
    with pytest.raises(InvalidOption, match=words):
        undo(delayq)


# Tasks that workers were to drop.


@pytest.mark.parametrize(
    "revoke",
    [
        lambda app: app.delayq.cancel("a", revoke=True),
        lambda app: app.control.revoke("a"),
        lambda app: app.control.revoke(["b", "a"]),
    ],
    ids=["cancel", "Celery's revoke", "of several"],
)
def test_a_revoked_task_that_a_worker_may_have_does_not_come_back(app, delayq, revoke):
    at(delayq, "leased", queue=ELSEWHERE)
    assert delayq.cancel("a", revoke=True) is Outcome.IN_FLIGHT
    assert refusal(delayq, "a")[0] == "waits"
    lease_out(delayq)

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


# Results.


def test_a_result_that_came_after_all_stays(app, add, delayq):
    add.s(1).set(task_id="a").delay_until(FAR)
    delayq.cancel("a")
    app.backend.store_result("a", 5, "SUCCESS")
    delayq.undo("a")
    assert app.backend.get_result("a") == 5


@pytest.mark.parametrize(
    "canvas",
    [lambda one: group(one, one), lambda one: chord([one, one], one)],
    ids=["group", "chord"],
)
def test_of_a_canvas_no_part_is_revoked_any_more(app, add, delayq, canvas):
    result = canvas(add.si(1)).delay_until(FAR)
    result.cancel()
    parts = [part.id for part in result.children or [result]]
    assert {state(app, part) for part in parts} == {"REVOKED"}

    delayq.undo(result.id)

    assert {app.backend.get_task_meta(part, cache=False)["status"] for part in parts} == {"PENDING"}
    assert delayq.counts().scheduled == 1
    assert delayq.get(result.id).is_canvas


# Many.


@pytest.fixture
def many(app, add):
    for number in range(120):
        options = {"task_id": f"a{number}", "delayq_tags": ["x"]}
        add.s(number).set(**options).delay_until(FAR + number)


def test_a_whole_bulk_comes_back_and_others_stay_cancelled(many, delayq):
    delayq.cancel("a119")
    first = delayq.select(tag="x", limit=20).cancel()
    count = delayq.select(tag="x").cancel()
    assert (count, delayq.counts().scheduled) == (99, 0)
    assert {task.bulk for task in delayq.undoable()} == {first.bulk, count.bulk, ""}
    told = []

    undone = delayq.undo_all(count.bulk, progress=lambda so_far: told.append(so_far.done))

    assert (undone.done, undone.refused, bool(undone)) == (99, [], True)
    assert told[-1] == 99
    assert len(told) > 1
    assert delayq.counts().scheduled == delayq.select(tag="x").count() == 99
    assert {task.bulk for task in delayq.undoable()} == {first.bulk, ""}
    assert delayq.undo_all(count.bulk).done == 0


def test_a_task_that_does_not_come_back_is_refused_with_its_reason(many, add, delayq):
    count = delayq.select(tag="x").cancel()
    add.s(1).set(task_id="a7").delay_until(FAR)

    undone = delayq.undo_all(count.bulk)

    assert (undone.done, undone.lost, bool(undone)) == (119, 0, False)
    assert [error.reason for error in undone.refused] == ["taken"]
    assert undone.reasons == [str(error) for error in undone.refused]


def test_tasks_whose_undo_is_no_longer_kept_are_counted_and_the_result_is_false(
    app, many, delayq, limits
):
    app.conf.delayq_undo = (3600, 20)
    limits(selection_chunk=20)
    count = delayq.select(tag="x").cancel()
    kept = len([*delayq.undoable()])
    assert (count, kept < 120) == (120, True)

    for done in (kept, 0):
        undone = delayq.undo_all(count.bulk)

        assert (undone.done, undone.refused, undone.lost) == (done, [], 120 - kept)
        assert not undone
        assert undone.reasons[0].startswith(f"{120 - kept} tasks cannot come back: no undo")


def stop(_count):
    raise KeyboardInterrupt


def test_a_bulk_goes_on_after_an_interruption(many, delayq, limits):
    limits(undo_chunk=10)
    count = delayq.select(tag="x").cancel()

    with pytest.raises(KeyboardInterrupt):
        delayq.undo_all(count.bulk, progress=stop)

    assert delayq.undo_all(count.bulk).done == 110
    assert delayq.counts().scheduled == 120


def test_each_that_can_come_back_is_listed_once(app, add, delayq):
    app.conf.delayq_undo = (60, 1)  # so that each cancel begins another generation
    for _ in range(2):
        add.s(1).set(task_id="a").delay_until(FAR)
        delayq.cancel("a")
    assert [task.id for task in delayq.undoable()] == ["a"]
    add.s(1).set(task_id="b").delay_until(FAR)
    delayq.cancel("b")
    assert sorted(task.id for task in delayq.undoable()) == ["a", "b"]


# Signals, the history and other listeners.


def test_the_signal_and_the_event_of_an_undo_have_the_name_of_its_actor(app, add, delayq):
    app.conf.delayq_history = 10
    heard = []

    def receiver(sender, signal, **facts):
        heard.append((sender, facts["task_id"], facts["due"].timestamp(), facts["actor"]))

    signals.task_undone.connect(receiver)
    add.s(1).set(task_id="a", delayq_key="k").delay_until(FAR)
    delayq.cancel("a")
    with delayq.acting("ann"):
        delayq.undo("a")

    assert heard == [(app, "a", FAR, "ann")]
    event = delayq.history()[0]
    assert (event.what, event.id, event.key, event.actor) == ("undone", "a", "k", "ann")
    assert event.due.timestamp() == FAR
