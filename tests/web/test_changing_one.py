"""Changes of one task: each answer in words, nothing that the page did not show, no text lost."""

import html
import logging
import re

import pytest

from celery_delayq import Outcome
from tests.app.support import FAR, LONG_AGO
from tests.app.test_repair import BODIES, MESSAGES, PROPERTIES
from tests.support.places import at
from tests.support.shards import keys_of, put_message
from tests.web.support import field, form_of, is_wrong

STALE = "task a was changed since you loaded the page, "


@pytest.mark.parametrize(
    ("action", "said"),
    [("cancel", "task a was cancelled"), ("run_now", "task a was made due now")],
)
def test_a_task_is_cancelled_or_runs_now(app, browser, task, action, said):
    page = browser.change(form_of(browser), action=action)
    assert (page.status, page.said) == (200, said)
    assert ("overdue due" in page.text) is (action == "run_now")
    assert app.delayq.hand_over() == (action == "run_now")
    assert app.delayq.get("a") is None


@pytest.mark.parametrize(
    ("form", "due"),
    [
        ({"value": "2100-01-02T00:00Z"}, FAR + 86400),
        ({"value": "2100-01-02T01:00", "zone": "Europe/Berlin"}, FAR + 86400),
        ({"value": " by:+1h "}, FAR + 3600),
    ],
)
def test_a_task_is_moved_to_a_time_in_the_zone_or_by_a_span(app, browser, task, form, due):
    page = browser.change(form_of(browser), action="reschedule", **form)
    assert (page.status, page.said) == (200, "task a was rescheduled")
    assert app.delayq.get("a").due.timestamp() == due


def test_a_typed_time_is_told_back_before_a_button_does_it(app, browser, scheduled):
    before = scheduled("a", at=FAR)
    typed = {"value": "2 Jan 2100 9:00", "zone": "Europe/Berlin"}

    page = browser.change(form_of(browser), action="look", **typed)

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
        ("tomorow 9:00", "'tomorow 9:00' is not a time; did you mean tomorrow 9:00?"),
        ('"><script>', "'\"><script>' is not a time; "),
    ],
)
def test_a_time_that_is_none_stands_in_its_field_beside_the_reason(browser, task, text, why):
    page = browser.change(form_of(browser), action="look", value=text)
    assert (page.status, page.said[: len(why)]) == (400, why)
    typed = html.escape(text).replace("&quot;", "&#34;")
    assert f'id="value" name="value" value="{typed}"' in page.html
    assert 'aria-describedby="value-forms value-error" aria-invalid="true"' in page.html
    assert "It will be due" not in page.text


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
def test_each_field_of_an_edit_changes_its_part_alone(app, browser, scheduled, typed, is_edited):
    before = scheduled("a", key="k", tags=["blue", "green"])
    shown = {"queue": "celery", "priority": "0", "key": "k", "tags": "blue\r\ngreen"}
    shown |= {"args": "[1]", "kwargs": "{}", "expires": ""}

    page = browser.change(form_of(browser), action="edit", **{**shown, **typed})

    after = app.delayq.get("a")
    assert (page.status, page.said) == (200, "task a was edited")
    assert is_edited(after)
    assert after.args == before.args or "args" in typed
    assert after.due == before.due


def test_an_edit_that_changes_nothing_says_so(app, browser, scheduled):
    before = scheduled("a", tags=["blue", "green"])
    page = browser.change(
        form_of(browser), action="edit", priority="0", tags="green\r\nblue", args="[1]"
    )
    said = "the task has all of these values already; nothing was changed"
    assert (page.status, page.said) == (400, said)
    assert app.delayq.get("a").revision == before.revision


EDIT = {"action": "edit", "queue": "fast", "priority": "3", "args": "[2]"}
LONG = '["' + "x" * 5_000


@pytest.mark.parametrize(
    ("wrong", "text", "said"),
    [
        ("args", "[2", "args is '[2'; expected JSON"),
        ("args", LONG, "args is '"),  # no URL has room for it
        ("kwargs", "{", "kwargs is '{'; expected JSON"),
        ("priority", "high", "priority is 'high'; expected a whole number from 0 to 255"),
        ("expires", "soon", "'soon' is not a time; expected one before 2255-06-05: "),
        ("queue", "", "queue is ''; expected a queue's name"),
        ("key", "k" * 600, "key is "),
        ("tags", "t" * 600, "add_tags is "),
    ],
)
def test_an_edit_that_is_wrong_keeps_each_text_in_its_field_beside_the_reason(  # noqa: PLR0917
    app, browser, task, wrong, text, said
):
    posted = browser.post(form_of(browser), **{**EDIT, wrong: text})

    assert (posted.location is None) is (text == LONG)
    page = browser.get(posted.location) if posted.location else posted
    assert (page.status, page.said[: len(said)]) == (400, said)
    assert is_wrong(page, wrong)
    assert text in field(page, wrong)
    assert all(EDIT[name] in field(page, name) for name in EDIT.keys() - {wrong, "action"})
    assert re.search(r"<details [^>]* open>\s*<summary>Edit</summary>", page.html)
    assert app.delayq.get("a") == task


def test_values_that_a_form_would_change_have_no_field(app, browser, scheduled):
    scheduled("a", key="two\nlines", tags=["two\nlines"])
    app.send_task("shop.remind", (b"x",), task_id="b", serializer="pickle", delayq_at=FAR)
    assert {'name="key"', 'name="tags"'}.isdisjoint(browser.get("/task?id=a").html.split())
    assert 'name="args"' not in browser.get("/task?id=b").html


# A page that is older than its task.


@pytest.mark.parametrize(
    "form",
    [
        {"action": "cancel"},
        {"action": "reschedule", "value": "by:+1h"},
        {"action": "run_now"},
        {"action": "edit", "priority": "3"},  # the value of today
    ],
    ids=lambda form: form["action"],
)
def test_a_stale_page_changes_nothing(app, browser, task, form):
    actions = form_of(browser)
    app.delayq.edit("a", priority=3)
    before = app.delayq.get("a")
    page = browser.change(actions, **form)
    assert (page.status, page.said[: len(STALE)]) == (409, STALE)
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


def test_an_edit_typed_over_an_older_revision_does_not_undo_what_came_since(app, browser, task):
    refused = browser.post(form_of(browser), **{**EDIT, "priority": "high"})
    app.delayq.edit("a", args=[7])
    page = browser.get(refused.location)
    page = browser.change(page.action_with("Priority"), **EDIT)
    assert page.said.startswith("task a was changed since you loaded the page")
    assert app.delayq.get("a").args == (7,)


@pytest.mark.parametrize(
    "form", [{"action": "cancel"}, {"action": "edit", "priority": "3"}], ids=str
)
def test_a_task_that_left_meanwhile_is_said_to_have_left(app, browser, scheduled, form):
    scheduled("a", at=LONG_AGO)
    action = form_of(browser)
    app.delayq.hand_over()
    page = browser.change(action, **form)
    assert page.status == 409
    assert page.said.startswith("task a has been handed over to its queue already, ")


def test_a_task_that_is_being_published_is_not_changed(delayq_app, url, browse):
    app = delayq_app(url, delayq_url=url.replace("/0", "/1"))
    at(app.delayq, "leased", queue="celery")
    browser = browse(app)
    page = browser.change(form_of(browser), action="cancel")
    assert page.status == 409
    assert page.said == "task a is being published this moment; try again shortly"


def test_a_change_while_redis_is_away_can_be_sent_again(browser, task, go_away):
    path = form_of(browser)
    go_away("rewrite")
    page = browser.post(path, **EDIT)
    assert page.status == 503
    form = dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', page.html))
    assert form == EDIT
    page = browser.change(page.action_with("Try again"), **form)
    assert page.said == "task a was edited"


def test_a_dead_task_is_retried_or_removed(app, browser, die):
    die("a", "b")
    page = browser.get("/task", id="a")
    assert ">Retry<" in page.html
    assert ">Cancel<" not in page.html

    retried = browser.change(page.action_with("Retry"), action="retry")
    removed = browser.change(browser.get("/task?id=b").action_with("Remove"), action="remove")

    assert (retried.said, removed.said) == ("task a was made due now", "task b was removed")
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


def test_the_answer_to_a_change_has_a_url_that_cannot_be_forged(browser, task):
    answer = browser.post(form_of(browser), action="cancel").location
    assert browser.get(answer).said == browser.get(answer).said == "task a was cancelled"
    for forged in (answer.replace("id=a", "id=b"), answer.replace("cancelled", "removed")):
        assert browser.get(forged).status == 400


# Records and messages that no program of this package wrote.


OTHERS = [b"{" + PROPERTIES + b', "headers": {"task": "t"}, "body": %s, "x": ' % b for b in BODIES]


@pytest.mark.parametrize("message", [*MESSAGES.values(), *OTHERS])
def test_a_task_whose_message_is_none_is_shown_and_cancelled(app, redis, browser, message):
    app.send_task("t", (1,), task_id="a", delayq_at=FAR)
    put_message(redis, "a", message)
    listed, shown = browser.get("/tasks"), browser.get("/task?id=a")
    assert (listed.status, shown.status) == (200, 200)
    assert "its message cannot be read: " in shown.text or message in OTHERS
    cancelled = browser.change(shown.action_with("Cancel"), action="cancel")
    assert cancelled.said == "task a was cancelled"


@pytest.mark.parametrize("is_ticked", [False, True])
def test_a_task_whose_record_is_none_is_shown_and_removed(app, redis, browser, is_ticked):
    app.send_task("t", (1,), task_id="a", delayq_at=LONG_AGO)
    redis.hset(keys_of("a")["records"], "a", "no record")
    app.delayq.hand_over()
    assert app.delayq.counts().dead == 1
    page, listed = browser.get("/task?id=a"), browser.get("/tasks?state=DEAD")
    assert page.status == 409
    assert page.said.startswith("the record of task 'a' cannot be read: ")
    assert "unknown" in listed.text

    if is_ticked:
        [value] = re.findall(r'name="one" value="([^"]*)"', listed.html)
        removed = browser.change("/selected", one=value, action="remove", sure="1")
        assert removed.said == "1 task of 1 was removed."
    else:
        removed = browser.change(page.action_with("Remove"), action="remove")
        assert removed.said == "task a was removed"

    assert app.delayq.counts().dead == 0
