"""Typed text is never lost, no page is the result of a form, and the way back is kept."""

import html
import re

import pytest

from celery_delayq.errors import StoreUnavailable
from tests.app.support import FAR
from tests.web.test_changing_many import chosen, counted, many, ticks, worked
from tests.web.test_changing_one import form_of

__all__ = ["many"]

EDIT = {"action": "edit", "queue": "fast", "priority": "3", "args": "[2]"}


def field(page, name):
    """The tag of a field, with the text within it."""
    found = re.search(rf'<(input|textarea|select) [^>]*name="{name}"[^>]*>([^<]*)', page.html)
    return html.unescape(found[0])


def is_wrong(page, name):
    """Whether the sentence stands beside this field, and the field refers to it."""
    tag = field(page, name)
    beside = re.search(r'aria-describedby="[^"]*?([\w-]+-error)" aria-invalid="true"', tag)
    return bool(beside) and f'<p role="alert" id="{beside[1]}"' in page.html


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ("args", "[2"),
        ("kwargs", "{"),
        ("priority", "high"),
        ("expires", "soon"),
        ("key", "k" * 600),
        ("tags", "t" * 600),
    ],
)
def test_an_edit_that_is_wrong_keeps_each_text_in_its_field(app, browser, scheduled, wrong, text):
    before = scheduled("a")

    page = browser.change(form_of(browser), **{**EDIT, wrong: text})

    assert page.status == 400
    assert is_wrong(page, wrong)
    assert text in field(page, wrong)
    for name, other in EDIT.items():
        if name not in (wrong, "action"):
            assert other in field(page, name)
    assert "<details open>" in page.html
    assert app.delayq.get("a") == before


def test_a_text_that_is_too_long_for_a_url_is_kept_too(app, browser, scheduled):
    before = scheduled("a")
    long = '["' + "x" * 5_000

    page = browser.post(form_of(browser), **{**EDIT, "args": long})

    assert (page.status, page.location) == (400, None)
    assert is_wrong(page, "args")
    assert long in field(page, "args")
    assert app.delayq.get("a") == before


def test_an_edit_typed_over_an_older_revision_does_not_undo_what_came_since(
    app, browser, scheduled
):
    scheduled("a")
    refused = browser.post(form_of(browser), **{**EDIT, "priority": "high"})
    app.delayq.edit("a", args=[7])
    page = browser.get(refused.location)

    page = browser.change(page.action_with("Priority"), **EDIT)

    assert page.said.startswith("task a was changed since you loaded the page")
    assert app.delayq.get("a").args == (7,)


@pytest.mark.parametrize(
    ("form", "wrong"),
    [
        ({"action": "", "value": "mail"}, "action"),
        ({"action": "reschedule", "value": "tomorow"}, "value"),
        ({"action": "reschedule", "value": "3/4/2100"}, "value"),
        ({"action": "prioritise", "value": "high"}, "value"),
        ({"action": "add_tag", "value": "t" * 600}, "value"),
        ({"action": "requeue", "value": ""}, "value"),
    ],
)
@pytest.mark.usefixtures("many")
def test_a_change_of_many_that_is_wrong_leads_back_to_the_list(browser, form, wrong):
    page = browser.get("/tasks", tag="even", order="latest")
    some = [*ticks(page).values()][:2]

    for path, ticked in (
        (page.action_with("ticked ones"), some),
        (page.url(r'formaction="([^"]*)"'), []),
    ):
        answered = browser.change(path, one=ticked, **form)
        assert answered.status == 400
        assert is_wrong(answered, wrong)
        if form["action"]:
            assert f'<option value="{form["action"]}" selected>' in answered.html
        assert form.get("value", "") in field(answered, "value")
        assert [*ticks(answered)] == [*ticks(page)]
        assert answered.html.count(" checked") == len(ticked)


@pytest.mark.usefixtures("many")
def test_a_value_that_no_url_can_carry_leaves_the_ticks(browser):
    page = browser.get("/tasks", tag="even")
    some = [*ticks(page).values()][:2]

    answered = browser.change(
        page.action_with("ticked ones"), one=some, action="add_tag", value="t" * 10_000
    )

    assert answered.status == 400
    assert is_wrong(answered, "value")
    assert answered.html.count(" checked") == 2


def test_a_filter_that_is_wrong_keeps_its_text(browser):
    page = browser.get("/tasks", queue="mail", after="tomorow")

    assert is_wrong(page, "after")
    assert "tomorow" in field(page, "after")
    assert "mail" in field(page, "queue")
    assert "No such task" not in page.text


def test_a_pause_that_is_wrong_keeps_its_text(browser):
    page = browser.change("/paused", action="pause", kind="everything", name="mail")

    assert is_wrong(page, "name")
    assert "mail" in field(page, "name")
    assert '<option value="everything" selected>' in page.html
    assert is_wrong(browser.change("/paused", action="pause", kind="queue", name="x" * 600), "name")


def test_a_rate_that_is_none_stands_beside_its_own_pause(app, browser):
    for queue in ("mail", "slow"):
        app.delayq.pause(queue=queue)
    path = browser.get("/paused").action_with("Resume queue slow")

    page = browser.change(path, action="resume", rate="fast")

    rates = re.findall(r'name="rate"[^>]*>', page.html)
    assert ['value="fast"' in rate for rate in rates] == [False, True]
    app.delayq.resume(queue="slow")
    assert browser.change(path, action="resume", rate="fast").said.startswith("rate is 'fast'")


def test_a_change_while_redis_is_away_can_be_sent_again(browser, scheduled, app, monkeypatch):
    scheduled("a")
    path = form_of(browser)
    with monkeypatch.context() as patched:

        def away(*_, **__):
            raise StoreUnavailable("edit", "it is gone")

        patched.setattr(type(app.delayq), "edit", away)
        page = browser.post(path, **EDIT)
    assert page.status == 503
    form = dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', page.html))
    assert form == EDIT

    page = browser.change(page.action_with("Try again"), **form)

    assert page.said == "task a was edited"


@pytest.mark.usefixtures("many")
def test_each_way_back_leads_to_the_list_with_its_filter_zone_and_place(browser, app):
    where = {
        "tag": "even",
        "order": "latest",
        "zone": "Europe/Berlin",
        "before": "31 Jan 2101 9:00",
    }
    listed = browser.get("/tasks", **where)

    def back(page):
        return page.url(r'<a href="([^"]*)">Back to the tasks')

    task = browser.get(listed.url(r'<th scope="row"[^>]*><a href="([^"]*)"'))
    told = browser.change(task.action_with("Look at"), action="look", value="2 Jan 2101 9:00")
    moved = browser.change(told.action_with("to then"), action="reschedule", value="+1h")
    asked = browser.change(
        listed.action_with("ticked ones"), one=[*ticks(listed).values()][:1], action="run_now"
    )
    done = browser.change(
        asked.action_with("Run now"),
        sure="1", one=[*ticks(listed).values()][:1], action="run_now",
    )  # fmt: skip
    whole = counted(browser, where, action="cancel")
    worked_off, _ = worked(browser, whole)

    for page in (task, told, moved, asked, done, whole, worked_off):
        query = dict(pair.split("=") for pair in back(page).partition("?")[2].split("&"))
        assert query == {
            "tag": "even", "order": "latest", "zone": "Europe/Berlin", "before": "31+Jan+2101+9:00",
        }  # fmt: skip


def test_a_way_back_leads_nowhere_else(browser, scheduled):
    scheduled("a")

    page = browser.get("/task", id="a", back="//evil.example/?tag=x&next=y")

    assert page.url(r'<a href="([^"]*)">Back to the tasks') is None
    page = browser.get("/task", id="a", back="tag=x&next=//evil.example")
    assert page.url(r'<a href="([^"]*)">Back to the tasks') == "/tasks?tag=x"
    page = browser.get("/task", id="a", back="tag=" + "x" * 2_000)
    assert "Back to the tasks" not in page.text


@pytest.mark.usefixtures("many")
def test_a_bulk_shows_the_first_five_that_it_means(browser):
    page = counted(browser, {"tag": "even"}, action="cancel")

    shown = re.findall(r'<th scope="row"[^>]*><a[^>]*>([^<]*)', page.html)
    assert shown == [f"task-0{number}" for number in (0, 2, 4, 6, 8)]
    assert "The first of them" in counted(browser, {}, action="cancel").text


def test_a_bulk_of_dead_tasks_shows_the_dead_alone(browser, scheduled):
    scheduled("a", at=FAR)

    page = chosen(browser, {"queue": "celery"}, action="cancel")

    assert "They are" in page.text
    assert "1 task matches." in page.text


@pytest.mark.usefixtures("many")
def test_the_answer_for_ticked_tasks_has_a_url_that_cannot_be_forged(browser):
    [one, *_] = ticks(browser.get("/tasks")).values()

    answer = browser.post("/selected", sure="1", one=one, action="cancel").location

    assert browser.get(answer).said == "1 task of 1 was cancelled."
    assert browser.get(answer.replace("done+", "not_found+")).status == 400
    assert browser.get("/selected?action=cancel&outcome=done+a+").status == 400


def test_ids_that_are_too_long_for_a_url_can_be_ticked(app, browser):
    for number in range(20):
        long = f"{number:02}" + "x" * 198
        app.send_task("shop.remind", (1,), task_id=long, delayq_at=FAR)
    some = [*ticks(browser.get("/tasks")).values()]

    asked = browser.post("/selected", one=some, action="cancel")
    done = browser.post("/selected", one=some, action="cancel", sure="1")

    assert (asked.status, done.status) == (200, 200)
    assert "20 tasks of 20 were cancelled." in done.text


def test_an_error_has_a_way_on(browser):
    assert '<a href="/">To the overview</a>' in browser.get("/nowhere").html
