"""`delayq.undo_all` of a move of many: each task that is as it was left goes back."""

import pytest

from celery_delayq import signals
from celery_delayq.core.hooks import part_of
from celery_delayq.errors import NotUndone
from tests.app.support import FAR, LONG_AGO, redis_ms
from tests.support.places import take
from tests.support.waiting import eventually

HOUR = 3600
IDS = [f"task-{number}" for number in range(6)]


@pytest.fixture
def app(app_with_results):
    app_with_results.conf.delayq_undo = (86_400, 1000)
    return app_with_results


@pytest.fixture
def many(add):
    for number, task_id in enumerate(IDS):
        add.s(1, 2).set(task_id=task_id, delayq_tags=["x"]).delay_until(FAR + number)


def dues(delayq):
    return {task.id: task.due.timestamp() - FAR for task in delayq.tasks()}


OLD = {task_id: number for number, task_id in enumerate(IDS)}
MOVES = [{"by": HOUR}, {"at": FAR + HOUR}, {"after": HOUR, "only": "earlier"}]


@pytest.mark.usefixtures("many")
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


@pytest.mark.usefixtures("many")
def test_a_move_of_one_that_is_part_of_a_bulk_goes_back_too(delayq):
    with part_of("b1"):
        delayq.reschedule("task-1", by=HOUR)
    delayq.reschedule("task-2", by=HOUR)  # by itself
    assert [(one.id, one.bulk, one.moved) for one in delayq.undoable()] == [("task-1", "b1", True)]
    assert delayq.undo_all("b1").done == 1
    assert dues(delayq) == {**OLD, "task-2": 2 + HOUR}


@pytest.mark.usefixtures("many")
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


@pytest.mark.usefixtures("many")
def test_of_two_moves_the_later_one_can_be_undone_and_the_earlier_one_is_lost(delayq):
    first = delayq.select(tag="x").reschedule(by=HOUR)
    second = delayq.select(tag="x").reschedule(by=HOUR)
    lost = delayq.undo_all(first.bulk)
    assert (lost.done, lost.refused, lost.lost) == (0, [], 6)
    assert delayq.undo_all(second.bulk).done == 6
    assert dues(delayq) == {task_id: due + HOUR for task_id, due in OLD.items()}


def test_a_time_that_has_come_since_is_refused_or_now(add, delayq, redis):
    soon_ms = redis_ms(redis) + 300
    add.s(1, 2).set(task_id="a", delayq_tags=["x"]).delay_until(soon_ms / 1000)
    count = delayq.select(tag="x").reschedule(at=FAR)
    assert count == 1
    eventually(lambda: redis_ms(redis) > soon_ms)

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


@pytest.mark.usefixtures("many")
def test_nothing_is_kept_without_the_setting_and_of_other_changes(app, delayq):
    assert delayq.select(tag="x").run_now().bulk == ""
    app.conf.delayq_undo = 0
    assert delayq.select(tag="x").reschedule(at=FAR).bulk == ""
    assert [*delayq.undoable()] == []


@pytest.mark.usefixtures("many")
def test_no_more_moves_are_kept_than_the_setting_says(app, delayq, limits):
    limits(selection_chunk=2)
    app.conf.delayq_undo = (86_400, 1)
    count = delayq.select(tag="x").reschedule(by=HOUR)
    kept = len([*delayq.undoable()])
    assert 1 <= kept < len(IDS)
    undone = delayq.undo_all(count.bulk)
    assert (undone.done, undone.lost) == (kept, len(IDS) - kept)


@pytest.mark.usefixtures("many")
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


@pytest.mark.usefixtures("many")
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
