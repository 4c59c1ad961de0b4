"""Undo on the pages: of one task, of the ticked ones, and of a whole selection in steps."""

import pytest

from tests.app.support import FAR, fall_due_after_cancel
from tests.web.conftest import IDS, OWN
from tests.web.support import counted, left, ticks, worked


@pytest.fixture
def app(app):
    app.conf.delayq_undo = (3600, 100)
    return app


def cancelled(browser, **filters):
    """Cancel all that match; return the page that offers to undo it."""
    counting = counted(browser, filters, action="cancel")
    return worked(browser, counting, ends=lambda page: "Undo:" in page.text)[0]


def test_after_a_cancel_the_task_s_page_has_a_button_that_undoes_it(app, browser, task, changed):
    page = browser.change(f"/task?id=a&revision={task.revision}", action="cancel")
    assert "Undo the cancel" in page.text
    assert "run it now" not in page.text

    page = browser.change(page.action_with("Undo"), one="a")

    assert (page.status, page.said) == (200, "task a is back")
    assert app.delayq.get("a").due.timestamp() == FAR
    assert "Undo" not in page.text
    assert [(facts["action"], facts["target"], facts["answer"]) for facts in changed[1:]] == [
        ("undo", {"task": "a"}, True)
    ]
    assert [event.actor for event in app.delayq.history(1)] == ["alice"]


@pytest.mark.parametrize("task_id", ["a", "a b\n\"'<&%2F\u202e"])
def test_a_cancel_that_was_made_elsewhere_can_be_undone_too(app, browser, scheduled, task_id):
    scheduled(task_id)
    app.delayq.cancel(task_id)
    page = browser.get("/task", id=task_id)
    assert "Undo the cancel" in page.text
    assert browser.change(page.action_with("Undo"), one=task_id).status == 200
    assert left(app) == [task_id]


def test_the_page_offers_to_run_a_task_now_if_its_due_time_is_over(app, browser, scheduled, redis):
    scheduled("a")
    app.delayq.cancel("a")
    fall_due_after_cancel(redis, "a")

    page = browser.change("/undo", one="a")
    assert page.status == 409
    assert "is over; run it now instead" in page.said
    assert "Undo, and run it now" in page.text
    page = browser.change(page.action_with("run it now"), one="a", now="1")

    assert page.said == "task a is back"
    assert app.delayq.hand_over() == 1


def test_a_refusal_stands_on_the_task_s_page(app, browser, scheduled):
    scheduled("a", key="k")
    app.delayq.cancel("a")
    scheduled("b", key="k")
    page = browser.change("/undo", one="a")
    assert page.status == 409
    assert "the task b has its unique key now" in page.said


def test_the_ticked_ones_come_back_together(app, browser, many):
    ticked = ticks(browser.get("/tasks"))
    app.delayq.reschedule("task-05", by=60)
    page = browser.change("/selected", sure="1", one=[*ticked.values()], action="cancel")
    assert "Undo: 9 tasks" in page.text
    app.send_task("shop.remind", (1,), task_id="task-03", delayq_at=FAR)

    page = browser.change(page.action_with("Undo"))

    assert page.said == "8 tasks are back; 1 task is not."
    assert "another task has its id" in page.text
    assert sorted(left(app)) == IDS


def test_a_whole_selection_comes_back_and_nothing_else(app, browser, many):
    app.delayq.cancel("task-01")
    page = cancelled(browser, tag="even")
    assert "Undo: 5 tasks" in page.text
    assert left(app) == IDS[3::2]
    page = browser.change(page.action_with("Undo"))
    assert page.said == "5 tasks are back."
    assert sorted(left(app)) == sorted({*IDS} - {"task-01"})


@pytest.mark.parametrize("how", ["filter", "ticks"])
def test_the_button_counts_what_is_kept_and_the_answer_what_is_not_back(
    app, browser, many, how, limits
):
    app.conf.delayq_undo = (3600, 2)
    limits(selection_chunk=2)
    if how == "ticks":
        ticked = ticks(browser.get("/tasks"))
        page = browser.change("/selected", sure="1", one=[*ticked.values()], action="cancel")
    else:
        page = cancelled(browser)
    kept = len([*app.delayq.undoable()])
    assert 2 <= kept < 10
    assert f"Undo: {kept} tasks" in page.text
    assert f"Of these, {kept} tasks can be brought back: delayq_undo keeps no more" in page.text

    page = browser.change(page.action_with("Undo"))

    assert page.said == f"{kept} tasks are back; {10 - kept} tasks are not."
    assert f"{10 - kept} tasks cannot come back: no undo of theirs is kept any more" in page.text
    assert len(left(app)) == kept


def test_an_undo_goes_in_steps_and_each_step_brings_others_back(
    app, browser, many, limits, short_steps
):
    limits(undo_chunk=2)
    page = cancelled(browser)
    page, said = browser.change(page.action_with("Undo")), []
    for _ in range(20):
        said.append(page.said)
        if "Continue" not in page.text:
            break
        to = browser.post(page.action_with("Continue")).location
        page = browser.get(to, headers=OWN)
        assert ("data-press" in page.html) == ("Continue" in page.text)

    assert said[:2] == ["2 tasks are back so far.", "4 tasks are back so far."]
    assert said[-1] == "10 tasks are back."
    assert left(app) == IDS


def test_of_a_selection_those_whose_time_is_over_run_now_if_that_is_pressed(
    app, browser, many, redis
):
    app.send_task("shop.remind", (1,), task_id="soon", delayq_at=FAR)
    page = cancelled(browser)
    fall_due_after_cancel(redis, "soon")

    page = browser.change(page.action_with("Undo"))
    assert page.said == "10 tasks are back; 1 task is not."
    page = browser.change(page.action_with("Run those now"))

    assert page.said == "11 tasks are back."
    assert app.delayq.hand_over() == 1


def test_no_other_change_is_offered_to_be_undone(app, browser, many):
    page, _ = worked(browser, counted(browser, {}, action="run_now"))
    assert "Undo" not in page.text


def test_without_the_setting_there_is_no_button(app, browser, many, scheduled):
    app.conf.delayq_undo = 0
    page, _ = worked(browser, counted(browser, {"tag": "even"}, action="cancel"))
    assert "Undo" not in page.text
    app.delayq.cancel("task-01")
    for undo in (0, (3600, 100)):  # nor is it there afterwards, as nothing was kept of the cancel
        app.conf.delayq_undo = undo
        assert "Undo" not in browser.get("/task", id="task-01").text


def test_a_reader_sees_no_button_and_undoes_nothing(app, browse, many):
    app.delayq.cancel("task-01")
    reader = browse(app, allow=lambda _: "read")
    assert "Undo" not in reader.get("/task", id="task-01").text
    assert reader.post("/undo", one="task-01").status == 403
    writer = browse(app)
    page = counted(writer, {"tag": "even"}, action="cancel")
    to = writer.post(page.action_with("<button")).location
    assert "Undo" in writer.get(to).text
    assert "Undo" not in reader.get(to).text
    assert "task-01" not in left(app)


def test_a_forged_bulk_is_refused(app, browser, many):
    bulk = app.delayq.select(all=True).cancel().bulk
    assert browser.post(f"/undo?bulk={bulk}").status == 400
    assert left(app) == []


@pytest.mark.parametrize("how", ["filter", "ticks"])
@pytest.mark.parametrize("value", ["by:+1h", "in 2 h"])
def test_a_move_of_many_is_undone_but_for_what_has_changed_since(app, browser, many, how, value):
    before = {task.id: task.due for task in app.delayq.tasks()}
    if how == "ticks":
        ticked = ticks(browser.get("/tasks"))
        form = {"one": [*ticked.values()], "action": "reschedule", "value": value}
        page = browser.change("/selected", sure="1", **form)
    else:
        page = counted(browser, {}, action="reschedule", value=value)
        assert "You can undo this for 1 h" in page.text
        page = worked(browser, page, ends=lambda page: "Undo:" in page.text)[0]
    assert "Undo: 10 tasks" in page.text
    app.delayq.edit("task-05", priority=3)
    moved = app.delayq.get("task-05").due

    page = browser.change(page.action_with("Undo"))

    assert page.said == "9 tasks are back; 1 task is not."
    cannot = "the move of task 'task-05' cannot be undone: it was moved or changed since"
    assert cannot in page.text
    assert {task.id: task.due for task in app.delayq.tasks()} == {**before, "task-05": moved}
