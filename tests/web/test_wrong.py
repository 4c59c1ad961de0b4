"""URLs and forms that no page leads to: each is refused in a sentence, and changes nothing."""

import pytest

# Of each page, what a person or a program can get wrong; see the first of each kind for its form.
QUERIES = {
    "/tasks": (
        "after=soon after=%2B1h&after=%2B2h before=2300-01-01 after=2100-01-01&zone=Middle/Earth "
        "state=tired order=random id=a&queue=mail id=a&key=k cursor=nothing "
        f"state=DEAD&cursor=nothing queue=mail&at=x queue=mail&at=-1 queue=mail&at={'1' * 30} "
        f"tag={'x' * 300}"
    ),
    "/queues": "found=3+mail",  # not signed
    "/rules": "place=x place=0 place=-1:0 place=0:-1 place=0:x place=111:0",
    "/key": "key=",
    "/undo": "count=999",
}


@pytest.mark.parametrize(
    "address", [f"{path}?{query}" for path, queries in QUERIES.items() for query in queries.split()]
)
def test_a_url_that_is_none_is_refused(browser, task, address):
    page = browser.get(address)
    assert page.status == 400
    assert page.said
    if address.startswith("/tasks") and "at=" not in address:
        assert "expected" in page.said


TASK = "/task?id=a"
SEEN = "/task?id=a&revision={}"
PAUSE = {"action": "pause", "kind": "queue", "name": "mail"}
FORMS = [
    (TASK, {"action": "explode"}, "action is 'explode'; expected one of "),
    (TASK, {}, "choose what to change; nothing was done"),
    ("/task", {"action": "cancel"}, "the id is missing"),
    ("/task?id=" + "a" * 600, {"action": "cancel"}, "task_id is "),
    (f"{TASK}&revision=x", {"action": "cancel"}, "revision is 'x'; expected "),
    (f"{TASK}&revision=-1", {"action": "cancel"}, "revision is '-1'; expected "),
    (f"{TASK}&revision=99999999999999999999999", {"action": "cancel"}, "if_revision is "),
    (TASK, {"action": "reschedule"}, "to reschedule, type a value"),
    (TASK, {"action": "reschedule", "value": "90"}, "'90' is not a time; expected +90"),
    (
        TASK,
        {"action": "reschedule", "value": "2100-01-01T00:00", "zone": "../x"},
        "zone is '../x'; expected a time zone that this machine knows, ",
    ),
    (SEEN, {"action": "edit"}, "the task has all of these values already; nothing was changed"),
    (SEEN, {"action": "edit", "kwargs": '{"colour": 1}'}, "arguments is "),
    ("/paused", {**PAUSE, "kind": "planet"}, ""),
    ("/paused", {"action": "pause", "name": "mars"}, ""),
    ("/paused", {**PAUSE, "action": "stop"}, ""),
    ("/paused", {"kind": "queue", "name": "mail"}, ""),
    ("/paused", {**PAUSE, "kind": "task", "name": "x" * 600}, ""),
    ("/key?key=k&seen=", {"action": "eat"}, ""),
    ("/rules?rule=r", {}, ""),
    ("/rules?rule=r", {"action": "eat"}, ""),
    ("/rules", {"action": "pause"}, ""),
    ("/rules?rule=" + "x" * 201, {"action": "pause"}, ""),
    ("/undo", {}, "no task is named"),
]


@pytest.mark.parametrize(("path", "form", "said"), FORMS)
def test_a_form_that_is_none_is_refused_and_changes_nothing(app, browser, task, path, form, said):  # noqa: PLR0917
    app.delayq.every("r", app.tasks["shop.remind"].s(1), "0 9 * * *")
    page = browser.change(path.format(task.revision), **form)
    assert page.status == 400
    assert page.said
    assert page.said.startswith(said)
    assert app.delayq.get("a") == task
    assert app.delayq.pauses() == []
    assert not app.delayq.rule("r").is_paused


def test_a_question_about_no_task_is_refused(browser):
    page = browser.get("/selected?action=cancel")
    assert (page.status, page.said.startswith("no task is ticked")) == (400, True)
