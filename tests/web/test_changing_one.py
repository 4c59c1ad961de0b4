"""Changes of one task: each answer in words, and nothing that the page did not show."""

import html
import logging
import re

import pytest

from celery_delayq import Outcome
from tests.app.support import FAR, LONG_AGO, claim, hand_over_until_dead


def form_of(browser, task_id="a"):
    return browser.get("/task", id=task_id).action_with("Cancel")


def test_cancel(app, browser, scheduled):
    scheduled("a")

    page = browser.change(form_of(browser), action="cancel")

    assert (page.status, page.said) == (200, "task a was cancelled")
    assert app.delayq.get("a") is None


def test_run_now(app, browser, scheduled):
    scheduled("a")

    page = browser.change(form_of(browser), action="run_now")

    assert (page.status, page.said) == (200, "task a was made due now")
    assert "overdue due" in page.text
    assert app.delayq.hand_over() == 1


@pytest.mark.parametrize(
    ("form", "due"),
    [
        ({"value": "2100-01-02T00:00Z"}, FAR + 86400),
        ({"value": "2100-01-02T00:00"}, FAR + 86400),
        ({"value": "2100-01-02T01:00", "zone": "Europe/Berlin"}, FAR + 86400),
        ({"value": " by:+1h "}, FAR + 3600),
        ({"value": "by:-1h30m"}, FAR - 5400),
        ({"value": str(FAR + 5), "zone": ""}, FAR + 5),
    ],
)
def test_reschedule(app, browser, scheduled, form, due):
    scheduled("a")

    page = browser.change(form_of(browser), action="reschedule", **form)

    assert (page.status, page.said) == (200, "task a was rescheduled")
    assert app.delayq.get("a").due.timestamp() == due


def test_reschedule_from_now(app, browser, scheduled):
    scheduled("a")
    before = app.delayq.counts().now_ms

    browser.change(form_of(browser), action="reschedule", value="+1h")

    due = app.delayq.get("a").due.timestamp() * 1000 - 3_600_000
    assert before <= due <= app.delayq.counts().now_ms + 1


EDITS = {
    "queue": ({"queue": "mail"}, lambda task: task.queue == "mail"),
    "priority": ({"priority": "3"}, lambda task: task.priority == 3),
    "key": ({"key": "other"}, lambda task: task.key == "other"),
    "no key": ({"key": ""}, lambda task: task.key == ""),
    "tags": ({"tags": "red\r\nblue"}, lambda task: set(task.tags) == {"red", "blue"}),
    "no tags": ({"tags": ""}, lambda task: task.tags == ()),
    "args": ({"args": "[7]"}, lambda task: task.args == (7,)),
    "kwargs": ({"kwargs": '{"text": "x"}'}, lambda task: task.kwargs == {"text": "x"}),
    "expires": ({"expires": "by:+1h"}, lambda task: task.headers["expires"][:4] == "2100"),
}


@pytest.mark.parametrize(("typed", "is_edited"), EDITS.values(), ids=EDITS)
def test_edit(app, browser, scheduled, typed, is_edited):
    before = scheduled("a", key="k", tags=["blue", "green"])
    shown = {"queue": "celery", "priority": "0", "key": "k", "tags": "blue\r\ngreen"}
    shown |= {"args": "[1]", "kwargs": "{}", "expires": ""}

    page = browser.change(form_of(browser), action="edit", **{**shown, **typed})

    after = app.delayq.get("a")
    assert (page.status, page.said) == (200, "task a was edited")
    assert is_edited(after)
    assert after.args == before.args or "args" in typed
    assert after.due == before.due


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ({}, "edit is None; expected one of args, kwargs, priority, expires, queue, "),
        ({"args": "["}, "args is '['; expected JSON"),
        ({"args": "3"}, "args is 3; expected a list or a tuple"),
        ({"kwargs": '{"colour": 1}'}, "arguments is "),
        ({"priority": "high"}, "priority is 'high'; expected a whole number from 0 to 255"),
        ({"expires": "soon"}, "'soon' is not a time; expected one before 2255-06-05: "),
        ({"queue": ""}, "queue is ''; expected a queue's name"),
        ({"tags": "x" * 300}, "add_tags is "),
    ],
)
def test_an_edit_that_is_none(app, browser, scheduled, typed, said):
    before = scheduled("a")

    page = browser.change(form_of(browser), action="edit", **typed)

    assert page.status == 400
    assert page.said.startswith(said)
    assert app.delayq.get("a") == before


def test_values_that_a_form_would_change_have_no_field(app, browser, scheduled):
    scheduled("a", key="two\nlines", tags=["two\nlines"])
    app.send_task("shop.remind", (b"x",), task_id="b", serializer="pickle", delayq_at=FAR)

    assert {'name="key"', 'name="tags"'}.isdisjoint(browser.get("/task?id=a").html.split())
    assert 'name="args"' not in browser.get("/task?id=b").html


def test_a_stale_page_changes_nothing(app, browser, scheduled):
    scheduled("a")
    actions = form_of(browser)
    app.delayq.reschedule("a", by=60)
    before = app.delayq.get("a")

    for form in (
        {"action": "cancel"},
        {"action": "reschedule", "value": "by:+1h"},
        {"action": "run_now"},
        {"action": "edit", "priority": "3"},
    ):
        page = browser.change(actions, **form)
        assert page.status == 409
        assert page.said.startswith("task a was changed since you loaded the page, ")
    assert app.delayq.get("a") == before


def test_values_typed_over_an_older_revision_stand_beside_the_newer_ones(app, browser, scheduled):
    scheduled("a", 1)
    actions = form_of(browser)
    app.delayq.edit("a", priority=5)

    typed = {"args": '["<b>"]', "priority": "0", "tags": ""}
    page = browser.change(actions, action="edit", **typed)

    assert page.status == 409
    assert 'you typed: args ["<b>"]' in page.text
    assert "you typed: priority 0" in page.text
    assert "you typed: tags" not in page.text
    assert 'name="priority" value="5"' in page.html  # another press does not undo what came since


def test_a_stale_page_that_has_today_s_values_is_stale_all_the_same(app, browser, scheduled):
    scheduled("a")
    actions = form_of(browser)
    app.delayq.edit("a", priority=3)

    page = browser.change(actions, action="edit", priority="3")

    assert page.status == 409
    assert page.said.startswith("task a was changed since you loaded the page, ")


def test_a_task_that_left_meanwhile(app, browser, scheduled):
    scheduled("a", at=LONG_AGO)
    action = form_of(browser)
    app.delayq.hand_over()

    for form in ({"action": "cancel"}, {"action": "edit", "priority": "3"}):
        page = browser.change(action, **form)
        assert page.status == 404
        assert page.said.startswith("task a has been handed over to its queue already, ")


def test_a_task_that_is_being_published(app, delayq_app, url, browse):
    app = delayq_app(url, delayq_url=url.replace("/0", "/1"))
    app.send_task("t", task_id="a", delayq_at=LONG_AGO)
    claim(app.delayq)
    browser = browse(app)

    page = browser.change(form_of(browser), action="cancel")

    assert page.status == 409
    assert page.said == "task a is being published this moment; try again shortly"


def test_a_dead_task_is_retried_or_removed(app, delayq_app, url, browse, redis):
    for task_id in ("a", "b"):
        app.send_task("shop.remind", (1,), task_id=task_id, queue="full", delayq_at=LONG_AGO)
    redis.set("full", "not a list")
    hand_over_until_dead(app.delayq, redis)
    browser = browse(app)

    page = browser.get("/task", id="a")
    assert ">Retry<" in page.html
    assert ">Cancel<" not in page.html
    retried = browser.change(page.action_with("Retry"), action="retry")
    removed = browser.change(browser.get("/task?id=b").action_with("Remove"), action="remove")

    assert retried.said == "task a was made due now"
    assert removed.said == "task b was removed"
    assert app.delayq.state("a").value == "SCHEDULED"
    assert app.delayq.get("b") is None


def test_each_change_is_told_with_the_user_s_name(browser, scheduled, changed, caplog):
    scheduled("a\n")

    with caplog.at_level(logging.INFO, "celery_delayq"):
        browser.change(form_of(browser, "a\n"), action="cancel")

    assert changed == [
        {"user": "alice", "action": "cancel", "target": {"task": "a\n"}, "answer": Outcome.DONE}
    ]
    assert r"task a\n: cancel by alice on the web page: done" in caplog.messages


@pytest.mark.parametrize(
    ("path", "form", "said"),
    [
        ("/task?id=a", {"action": "explode"}, "action is 'explode'; expected one of run_now, "),
        ("/task?id=a", {}, "choose what to change; nothing was done"),
        ("/task", {"action": "cancel"}, "the id is missing"),
        ("/task?id=a&revision=x", {"action": "cancel"}, "revision is 'x'; expected "),
        ("/task?id=a&revision=-1", {"action": "cancel"}, "revision is '-1'; expected "),
        ("/task?id=a&revision=99999999999999999999999", {"action": "cancel"}, "if_revision is "),
        ("/task?id=a", {"action": "reschedule"}, "to reschedule, type a value"),
        ("/task?id=a", {"action": "reschedule", "value": "90"}, "'90' is not a time; expected +90"),
        (
            "/task?id=a",
            {"action": "reschedule", "value": "2100-01-01T00:00", "zone": "../x"},
            "zone is '../x'; expected a time zone that this machine knows, ",
        ),
        ("/task?id=" + "a" * 600, {"action": "cancel"}, "task_id is "),
    ],
)
def test_a_form_that_is_none(app, browser, scheduled, path, form, said):  # noqa: PLR0917
    before = scheduled("a")

    page = browser.change(path, **form)

    assert page.status == 400
    assert page.said.startswith(said)
    assert app.delayq.get("a") == before


@pytest.mark.parametrize(
    "query",
    [
        {"after": "soon"},
        {"after": ["+1h", "+2h"]},
        {"before": "2300-01-01"},
        {"state": "tired"},
        {"cursor": "nothing"},
        {"state": "DEAD", "cursor": "nothing"},
        {"order": "random"},
        {"tag": "x" * 300},
        {"id": "a", "queue": "mail"},
        {"id": "a", "key": "k"},
        {"after": "2100-01-01", "zone": "Middle/Earth"},
    ],
)
def test_a_filter_that_is_none(browser, query):
    page = browser.get("/tasks", **query)

    assert page.status == 400
    assert "expected" in page.said


def test_a_typed_time_is_told_back_before_a_button_does_it(app, browser, scheduled):
    before = scheduled("a", at=FAR)

    page = browser.change(
        form_of(browser), action="look", value="2 Jan 2100 9:00", zone="Europe/Berlin"
    )

    assert re.search(r"It will be due Sat 2 Jan 2100, 09:00 Europe/Berlin, in [\d,]+ d", page.text)
    assert 'value="2 Jan 2100 9:00"' in page.html
    assert app.delayq.get("a") == before
    at = page.url('name="value" value="(2[^"]*T[^"]*)"')
    page = browser.change(page.action_with("to then"), action="reschedule", value=at)
    assert page.said == "task a was rescheduled"
    assert app.delayq.get("a").due.isoformat() == "2100-01-02T08:00:00+00:00"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("tomorow 9:00", "'tomorow 9:00' is not a time; expected one before 2255-06-05: "),
        ("3/4/2100 9:00", "'3/4/2100 9:00' can mean two times; type 2100-"),
        ('"><script>', "'\"><script>' is not a time; "),
    ],
)
def test_a_time_that_is_none_stands_in_its_field_beside_the_reason(browser, scheduled, text, why):
    scheduled("a")

    page = browser.change(form_of(browser), action="look", value=text)

    assert (page.status, page.said[: len(why)]) == (400, why)
    assert (
        f'id="value" name="value" value="{html.escape(text).replace("&quot;", "&#34;")}"'
        in page.html
    )
    assert 'aria-describedby="value-forms value-error" aria-invalid="true"' in page.html
    assert "It will be due" not in page.text


def test_the_answer_to_a_change_has_a_url_that_cannot_be_forged(app, browser, scheduled):
    scheduled("a")
    answer = browser.post(form_of(browser), action="cancel").location

    assert browser.get(answer).said == browser.get(answer).said == "task a was cancelled"
    for forged in (answer.replace("id=a", "id=b"), answer.replace("cancelled", "removed")):
        assert browser.get(forged).status == 400
