"""The views: their content, its order, and their filters."""

import re
from datetime import timedelta
from itertools import chain

import pytest

from celery_delayq.contrib.web import words
from tests.app.support import FAR, LONG_AGO


def test_the_overview_has_counts_queues_and_problems(browser, scheduled):
    scheduled("a", queue="mail")
    scheduled("b", at=LONG_AGO)

    page = browser.get("/")

    assert page.status == 200
    assert page.title.endswith("Overview · tests")
    assert "Waiting 2 Overdue 1 " in page.text
    assert "mail 1 0" in page.text
    assert "no scanner is alive: no tasks are delivered" in page.text


def test_tasks_are_listed_in_due_order(browser, scheduled):
    scheduled("second", at=FAR + 1)
    scheduled("first", at=FAR, key="k", tags=["blue"])

    page = browser.get("/tasks")

    rows = page.text.partition("State Id ")[2]
    assert rows.index(" first") < rows.index(" second")
    assert re.search(r"in [\d,]+ d.*? 2100-01-01 00:00:00 UTC shop.remind key k", rows)
    assert "(1,) blue celery scheduled first" in rows


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ({}, "abc"),
        ({"order": "latest"}, "cba"),
        ({"queue": "mail"}, "b"),
        ({"tag": "blue"}, "c"),
        ({"task": "shop.remind"}, "abc"),
        ({"task": "shop.other"}, ""),
        ({"id": "task-b"}, "b"),
        ({"key": "k"}, "a"),
        ({"state": "PAUSED"}, ""),
        ({"state": "SCHEDULED"}, "abc"),
        ({"after": "2100-01-01T00:01"}, "bc"),
        ({"before": "2100-01-01T00:01Z"}, "a"),
        ({"after": "2100-01-01T01:01", "zone": "Europe/Berlin"}, "bc"),
        ({"after": "+1h"}, "abc"),
        ({"after": "2100-01-01T00:01Z", "zone": "Middle/Earth"}, "bc"),
        ({"queue": "mail", "tag": "blue"}, ""),
    ],
)
def test_filters(browser, scheduled, query, shown):
    scheduled("task-a", at=FAR, key="k")
    scheduled("task-b", at=FAR + 60, queue="mail")
    scheduled("task-c", at=FAR + 120, tags=["blue"])

    page = browser.get("/tasks", **query)

    rows = page.text.partition("State Id ")[2]
    found = [word for word in rows.split() if word in ("task-a", "task-b", "task-c")]
    assert found == [f"task-{one}" for one in shown]
    assert ("No such task is scheduled." in page.text) is not bool(shown)


@pytest.mark.parametrize("query", [{}, {"state": "SCHEDULED"}, {"order": "latest"}])
def test_pages_of_a_list_have_each_task_once(app, browser, query):
    ids = [f"task-{number:03}" for number in range(120)]
    for number, task_id in enumerate(ids):
        app.send_task("shop.remind", (1,), task_id=task_id, delayq_at=FAR + number)

    found, page = [], browser.get("/tasks", **query)
    while len(found) < 5:
        found.append([word for word in page.text.split() if word.startswith("task-")])
        rest = page.url('rel="next" href="([^"]*)"')
        if not rest:
            break
        page = browser.get(rest)

    assert [len(some) for some in found] == [50, 50, 20]
    assert [*chain(*found)] == (ids[::-1] if query.get("order") else ids)


def test_the_page_of_a_task_has_its_facts_and_headers(browser, scheduled):
    task = scheduled("a", 42, key="k", tags=["blue"], queue="mail")

    page = browser.get("/task", id="a")

    assert page.title.endswith("Task a · tests")
    assert "args [ 42 ]" in page.text
    assert f"revision {task.revision}" in page.text
    assert "key k tags blue" in page.text
    assert f"root_id {task.id}" in page.text


def test_a_task_is_overdue_from_its_due_time_on_as_the_counts_have_it(scheduled):
    task = scheduled("a", at=FAR)

    assert words.state(task, task.due - timedelta(milliseconds=1)) == "scheduled"
    assert words.state(task, task.due) == "overdue"


def test_a_task_that_left_is_said_to_have_left(app, browser, scheduled):
    scheduled("a", at=LONG_AGO)
    app.delayq.hand_over()

    page = browser.get("/task", id="a")

    assert page.status == 404
    assert page.said.startswith("task a has been handed over to its queue already, ")


def test_a_task_that_never_was(browser):
    page = browser.get("/task", id="nobody")

    assert page.status == 404
    assert page.said.startswith("task nobody is not scheduled in redis://")


def test_hidden_arguments_are_on_no_page(app, browse, scheduled):
    scheduled("a", "card-4711", key="k")
    shown, hidden = browse(app), browse(app, hide_arguments=True)

    for path in ("/tasks", "/task?id=a"):
        assert "card-4711" in shown.get(path).html
        assert "card-4711" not in hidden.get(path).html
    assert "args hidden kwargs hidden" in hidden.get("/task?id=a").text


def test_arguments_that_the_caller_hides_stay_hidden(app, browser):
    app.send_task("shop.remind", ("card-4711",), task_id="a", delayq_at=FAR, argsrepr="(***,)")

    assert "(***,)" in browser.get("/task?id=a").text
    assert "card-4711" not in browser.get("/task?id=a").html


HOSTILE = "<script>alert(1)</script>\"'&\u202e\x1b[2J\n"


def test_hostile_text_is_shown_as_text(app, browser):
    app.send_task(
        HOSTILE,
        (HOSTILE,),
        {"text": HOSTILE},
        task_id=HOSTILE,
        queue=HOSTILE,
        delayq_at=FAR,
        delayq_key=HOSTILE,
        delayq_tags=[HOSTILE],
        headers={HOSTILE: HOSTILE},
    )

    pages = [
        browser.get("/"),
        browser.get("/tasks"),
        browser.get("/tasks", queue=HOSTILE, tag=HOSTILE, task=HOSTILE),
        browser.get("/task", id=HOSTILE),
        browser.get("/task", id=HOSTILE + "?"),
        browser.get("/tasks", after=HOSTILE),
    ]

    assert [page.status for page in pages] == [200, 200, 200, 200, 404, 400]
    for page in pages:
        assert r"&lt;script&gt;alert(1)&lt;/script&gt;" in page.html
        assert "<script>" not in page.html
        for hidden in ("\u202e", "\x1b"):
            assert hidden not in page.html


def test_the_page_of_a_task_says_which_one_it_waits_behind_and_until_when(app, browser):
    held = {"key": "k", "unique_until": "finished", "conflict": "replace"}
    for task_id in ("A-first", "second"):
        app.delayq.schedule(app.signature("t").set(task_id=task_id), at=LONG_AGO, **held)
        app.delayq.hand_over()

    text = browser.get("/task", id="second").text

    assert "scheduled, behind A-first" in text
    until = r"in [^(]+ \(.* UTC\)"
    waits = f"waits behind task A-first, which holds its key until {until} at the latest"
    assert re.search(rf"It {waits}\.", text)
    assert re.search(r"behind until \d{4}-\d\d-\d\d ", text)
    page = browser.change(browser.get("/task", id="second").action_with("Cancel"), action="run_now")
    assert (page.status, bool(re.fullmatch(f"task second is due now, but {waits}", page.said))) == (
        200,
        True,
    )
