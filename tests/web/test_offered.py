"""The changes that a list offers, and the words on their buttons."""

import re

import pytest

from tests.app.support import LONG_AGO, hand_over_until_dead
from tests.web.test_changing_many import ACTIONS, counted, many, ticks

__all__ = ["many"]


@pytest.fixture
def dead(app, redis, many):
    """A dead task, beside ten that wait."""
    app.send_task("shop.remind", (1,), task_id="dead", queue="full", delayq_at=LONG_AGO)
    redis.set("full", "not a list")
    hand_over_until_dead(app.delayq, redis)


def offered(page):
    [form] = re.findall(r'<select id="m-action".*?</select>', page.html, re.DOTALL)
    return re.findall(r'<option value="(.*?)">', form)


WAITING = ["run_now", "cancel", "reschedule", "add_tag", "remove_tag", "requeue", "prioritise"]
DEAD = ["retry", "remove", "reschedule"]


@pytest.mark.parametrize(
    ("filters", "title", "actions"),
    [
        ({}, "Tasks", {*WAITING}),
        ({"state": "DEAD"}, "Dead tasks", {*DEAD}),
        ({"id": "dead"}, "Tasks", {*DEAD}),
        ({"state": ["DEAD", "SCHEDULED"]}, "Tasks", {*WAITING, *DEAD}),
    ],
)
@pytest.mark.usefixtures("dead")
def test_a_list_offers_what_suits_its_tasks(browser, filters, title, actions):
    page = browser.get("/tasks", **filters)

    assert page.title.endswith(f" · {title} · tests")
    assert f"<h1>{title}</h1>" in page.html
    assert set(offered(page)) == {"", *actions}


@pytest.mark.parametrize("name", [name for name in ACTIONS if name != "run now"])
def test_the_buttons_have_the_value(browser, many, name):
    form, _ = ACTIONS[name]
    ticked = browser.change("/selected", one=[*ticks(browser.get("/tasks")).values()], **form)
    shown = {
        "at": " to Mon 1 Feb 2100, 00:00 UTC, in [0-9,]+ d( [0-9]+ h)?",
        "after": r" to \w{3} \d+ \w{3} \d{4}, [0-9:]+ UTC, in (1 h|59 min)",
        "by": r", \+1h from its due time",
    }.get(name, f", {re.escape(form['value'])}")

    assert re.search(f"10 tasks{shown} Back to the tasks task-00", ticked.text)
    assert re.search(f"10 tasks{shown} Back to the tasks", counted(browser, {}, **form).text)


def test_a_value_that_the_change_does_not_take_is_not_shown(browser, many):
    form = {"action": "cancel", "value": "ignored"}

    for page in (browser.change("/selected", one="1 a", **form), counted(browser, {}, **form)):
        assert "ignored" not in page.text


@pytest.mark.parametrize(
    ("filters", "scans"),
    [({}, True), ({"queue": "mail"}, True), ({"tag": "even"}, False), ({"state": "DEAD"}, False)],
)
@pytest.mark.usefixtures("dead")
def test_all_that_match_without_a_tag_are_said_to_be_slow(browser, filters, scans):
    page = counted(browser, filters, action="reschedule", value="by:+1h")

    assert ("Each step scans all waiting tasks again" in page.text) is scans


def test_the_overview_leads_to_the_dead_and_has_events_last(browser, many):
    page = browser.get("/")

    assert "The dead tasks" not in page.text
    assert page.text.index("Scanners") < page.text.index("What happened last")
    assert page.html.count('<span class="badge scheduled">') == 8


@pytest.mark.usefixtures("dead")
def test_the_overview_marks_the_dead(browser):
    page = browser.get("/").html
    assert re.search(r'<div class="loud"><dt>Dead</dt><dd><a href="/tasks\?state=DEAD">1<', page)
    assert '<div class="zero"><dt>In flight</dt>' in page
    assert "The dead tasks" in browser.get("/").text


def test_the_changes_of_a_task_are_above_its_facts(browser, many):
    page = browser.get("/task?id=task-00").text

    changes, facts, details = map(page.index, ("Change it", "task shop.remind", "Revision, host"))
    assert changes < facts < details < page.index("revision ")
