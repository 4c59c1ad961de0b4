"""`delayq.undo` and `undo_all`: cancelled tasks wait again as they were, and moved ones go back."""

from datetime import datetime

import pytest
from celery import chord, group
from kombu import Exchange, Queue

from celery_delayq import Outcome, signals
from celery_delayq.core.hooks import part_of
from celery_delayq.errors import InvalidOption, NotUndone
from tests.app.support import FAR, LONG_AGO, fall_due_after_cancel, fall_due_after_move
from tests.support.places import at, lease_out, take
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


# `delayq.undo_all` of a move of many: each task that is as it was left goes back.


HOUR = 3600
IDS = [f"task-{number}" for number in range(6)]


@pytest.fixture
def six(add):
    for number, task_id in enumerate(IDS):
        add.s(1, 2).set(task_id=task_id, delayq_tags=["x"]).delay_until(FAR + number)


def dues(delayq):
    return {task.id: task.due.timestamp() - FAR for task in delayq.tasks()}


OLD = {task_id: number for number, task_id in enumerate(IDS)}
MOVES = [{"by": HOUR}, {"at": FAR + HOUR}, {"after": HOUR, "only": "earlier"}]


@pytest.mark.usefixtures("six")
@pytest.mark.parametrize("move", MOVES)
def test_moved_tasks_go_back_to_their_old_due_times(delayq, move, redis):
    count = delayq.select(tag="x").reschedule(**move)
    assert count == len(IDS)
    assert not set(dues(delayq).items()) & set(OLD.items())

    undone = delayq.undo_all(count.bulk)

    assert (undone.done, undone.refused, undone.lost, bool(undone)) == (6, [], 0, True)
    assert dues(delayq) == OLD
    again = delayq.undo_all(count.bulk)
    assert (again.done, bool(again)) == (0, True)
    assert [*delayq.undoable()] == []
    assert [*delayq.check()] == []


@pytest.mark.usefixtures("six")
def test_a_move_of_one_that_is_part_of_a_bulk_goes_back_too(delayq):
    with part_of("b1"):
        delayq.reschedule("task-1", by=HOUR)
    delayq.reschedule("task-2", by=HOUR)  # by itself
    assert [(one.id, one.bulk, one.moved) for one in delayq.undoable()] == [("task-1", "b1", True)]
    assert delayq.undo_all("b1").done == 1
    assert dues(delayq) == {**OLD, "task-2": 2 + HOUR}


@pytest.mark.usefixtures("six")
def test_what_has_changed_since_stays_and_is_refused_with_its_reason(delayq):
    count = delayq.select(tag="x").reschedule(by=HOUR)
    delayq.reschedule("task-0", by=60)
    delayq.edit("task-1", priority=3)
    delayq.cancel("task-2")
    delayq.run_now("task-3")
    assert delayq.hand_over() == 1
    moved = dues(delayq)

    undone = delayq.undo_all(count.bulk)

    found = {error.task_id: (error.reason, str(error)) for error in undone.refused}
    assert (undone.done, bool(undone)) == (2, False)
    cannot = "the move of task '{}' cannot be undone: {}"
    changed = "it was moved or changed since"
    gone = "it was delivered or cancelled since, or is being delivered"
    assert found == {
        "task-0": ("changed", cannot.format("task-0", changed)),
        "task-1": ("changed", cannot.format("task-1", changed)),
        "task-2": ("gone", cannot.format("task-2", gone)),
        "task-3": ("gone", cannot.format("task-3", gone)),
    }
    assert dues(delayq) == {**moved, "task-4": 4, "task-5": 5}
    # The cancel has a line of its own.
    assert delayq.undo("task-2").timestamp() == FAR + 2 + HOUR


@pytest.mark.usefixtures("six")
def test_of_two_moves_the_later_one_can_be_undone_and_the_earlier_one_is_lost(delayq):
    first = delayq.select(tag="x").reschedule(by=HOUR)
    second = delayq.select(tag="x").reschedule(by=HOUR)
    lost = delayq.undo_all(first.bulk)
    assert (lost.done, lost.refused, lost.lost) == (0, [], 6)
    assert delayq.undo_all(second.bulk).done == 6
    assert dues(delayq) == {task_id: due + HOUR for task_id, due in OLD.items()}


def test_a_time_that_has_come_since_is_refused_or_now(add, delayq, redis):
    add.s(1, 2).set(task_id="a", delayq_tags=["x"]).delay_until(FAR + 60)
    count = delayq.select(tag="x").reschedule(at=FAR)
    assert count == 1
    fall_due_after_move(redis, "a", FAR + 60)

    [refused] = delayq.undo_all(count.bulk).refused
    assert isinstance(refused, NotUndone)
    assert refused.reason == "overdue"
    assert "the move of task 'a' cannot be undone: its due time, " in str(refused)
    assert dues(delayq) == {"a": 0}
    assert delayq.undo_all(count.bulk, now=True).done == 1
    assert delayq.hand_over() == 1


def test_a_time_that_had_come_already_comes_back(add, delayq):
    add.s(1, 2).set(task_id="a", delayq_tags=["x"]).delay_until(LONG_AGO)
    count = delayq.select(tag="x").reschedule(at=FAR)
    assert delayq.undo_all(count.bulk).done == 1
    assert delayq.get("a").due.timestamp() == LONG_AGO


def test_a_dead_task_does_not_come_back_alive(add, delayq):
    add.s(1, 2).set(task_id="a", delayq_tags=["x"]).delay_until(LONG_AGO)
    take(delayq, "dead", "a")
    count = delayq.select(tag="x").reschedule(at=FAR)
    undone = delayq.undo_all(count.bulk)
    assert (count, undone.done, undone.lost) == (1, 0, 1)
    assert dues(delayq) == {"a": 0}


@pytest.mark.usefixtures("six")
def test_nothing_is_kept_without_the_setting_and_of_other_changes(app, delayq):
    assert delayq.select(tag="x").run_now().bulk == ""
    app.conf.delayq_undo = 0
    assert delayq.select(tag="x").reschedule(at=FAR).bulk == ""
    assert [*delayq.undoable()] == []


@pytest.mark.usefixtures("six")
def test_no_more_moves_are_kept_than_the_setting_says(app, delayq, limits):
    limits(selection_chunk=2)
    app.conf.delayq_undo = (86_400, 1)
    count = delayq.select(tag="x").reschedule(by=HOUR)
    kept = len([*delayq.undoable()])
    assert 1 <= kept < len(IDS)
    undone = delayq.undo_all(count.bulk)
    assert (undone.done, undone.lost) == (kept, len(IDS) - kept)


@pytest.mark.usefixtures("six")
def test_the_history_and_the_signals_tell_of_an_undone_move(app, delayq):
    app.conf.delayq_history = 100
    count = delayq.select(tag="x").reschedule(by=HOUR)
    told = []

    def receiver(sender, signal, task_id, due, **_):
        told.append((task_id, due.timestamp() - FAR))

    signals.task_rescheduled.connect(receiver)
    delayq.undo_all(count.bulk)
    assert sorted(told) == sorted(OLD.items())
    events = delayq.history(20, bulk=count.bulk)
    assert {(each.what.value, each.count) for each in events if not each.id} == {
        ("rescheduled", 6),
        ("undone", 6),
    }


@pytest.mark.usefixtures("six")
def test_a_task_that_another_bulk_moves_while_the_undo_is_on_its_way_stays(delayq, between):
    count = delayq.select(tag="x").reschedule(by=HOUR)
    others = []

    def move():
        if not others:
            others.append("")  # this move is one of those calls, too
            others[0] = delayq.select(tag="x", limit=1).reschedule(by=60).bulk

    between.before("reschedule", move)
    undone = delayq.undo_all(count.bulk)

    assert (undone.done, [error.reason for error in undone.refused]) == (5, ["changed"])
    assert dues(delayq) == {**OLD, "task-0": HOUR + 60}
    assert delayq.undo_all(others[0]).done == 1
    assert dues(delayq) == {**OLD, "task-0": HOUR}
