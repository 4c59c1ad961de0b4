"""A user finds tasks by a part: by suggestions, a beginning, a text in the arguments."""

import re

import pytest

from celery_delayq.contrib.web import looking
from celery_delayq.operations import finding
from tests.app.support import FAR, LONG_AGO, hand_over_until_dead


def shown(page):
    return re.findall(r'<th scope="row"[^>]*><a [^>]*>([^<]*)</a>', page.html)


@pytest.mark.parametrize("path", ["/tasks", "/paused"])
def test_tasks_and_queues_that_exist_are_suggested(browser, path):
    page = browser.get(path)

    for name, kind in (("shop.remind", "task"), ("celery", "queue")):
        field = kind if path == "/tasks" else "name"
        names = re.search(rf'name="{field}"[^>]* list="(\w+)"', page.html)[1]
        options = page.html.partition(f'<datalist id="{names}">')[2].partition("</datalist>")[0]
        assert f'<option value="{name}">' in options
        assert "celery.backend_cleanup" not in options


def test_the_tags_of_the_tasks_on_the_page_are_suggested(browser, scheduled):
    scheduled("a", tags=["x", "<y>"])
    scheduled("b", tags=["x"])
    page = browser.get("/tasks")
    assert '<datalist id="tags"><option value="&lt;y&gt;"></option><option value="x"></option>' in (
        page.html
    )


@pytest.mark.parametrize(
    ("query", "meant"),
    [
        ({"task": "remind"}, "shop.remind"),
        ({"queue": "ma"}, "mail"),
        ({"tag": "customer"}, "customer:7"),
    ],
)
def test_a_filter_that_matches_nothing_suggests_another_value(browser, scheduled, query, meant):
    scheduled("a", queue="mail", tags=["customer:7"])

    page = browser.get("/tasks", **query)

    # Tasks of other tests' modules may be alike, too.
    assert f"No such task is scheduled. Did you mean {meant} " in page.text
    assert shown(browser.get(page.url(r'Did you mean <a href="([^"]*)"'))) == ["a"]


def test_the_beginning_of_an_id_is_enough(browser, scheduled, monkeypatch):
    for number in range(30):
        scheduled(f"order-{number:02}")

    assert shown(browser.get("/tasks?id=order-07")) == ["order-07"]
    assert shown(browser.get("/tasks?id=order-2")) == [f"order-2{number}" for number in range(10)]
    assert browser.get("/tasks?id=orde").said == "No such task is scheduled."


def test_ids_are_looked_for_in_steps(browser, scheduled, monkeypatch):
    monkeypatch.setattr(finding, "_STEP", 10)
    monkeypatch.setattr(looking, "SECOND", 0)
    for number in range(700):
        scheduled(f"task-{number:03}")
    found, page, steps = [], browser.get("/tasks?id=task-64"), 0
    while page is not None and steps < 200:
        found, steps = found + shown(page), steps + 1
        if "looks at the ids" in page.text:
            assert "has looked at some" in page.text
        further = page.url(r'href="([^"]*)"[^>]*>Look on')
        page = browser.get(further) if further else None

    assert steps > 3
    assert sorted(found) == [f"task-64{number}" for number in range(10)]


@pytest.mark.parametrize(
    "query", [{}, {"tag": "even"}, {"queue": "celery"}, {"state": "SCHEDULED"}]
)
def test_a_text_in_the_arguments(browser, scheduled, query):
    scheduled("a", "Ann@Example.com", tags=["even"])
    scheduled("b", "bob@example.com", tags=["even"])
    scheduled("c", "ann@example.com", queue="mail", at=FAR + 1)

    page = browser.get("/tasks", text="ann@", **query)

    assert shown(page) == (["a"] if query.keys() & {"tag", "queue"} else ["a", "c"])
    # A change of all that match knows no such filter.
    assert "Count all that match" not in page.text
    assert "Change the ticked ones" in page.text


def test_dead_tasks_are_searched_too(app, browser, redis):
    for address in ("ann", "bob"):
        app.send_task("shop.remind", (address,), task_id=address, queue="x", delayq_at=LONG_AGO)
    redis.set("x", "not a list")
    hand_over_until_dead(app.delayq, redis)

    assert shown(browser.get("/tasks?state=DEAD&text=bob")) == ["bob"]


def test_arguments_are_searched_in_steps_that_say_so(browser, scheduled, monkeypatch):
    monkeypatch.setattr(looking, "SECOND", 0)
    for number in range(5):
        scheduled(f"task-{number}", f"user-{number}", at=FAR + number)

    page, steps = browser.get("/tasks?text=user-3"), 0
    while "task-3" not in shown(page) and steps < 9:
        assert "This looks into the arguments of each task" in page.text
        page, steps = browser.get(page.url(r'href="([^"]*)"[^>]*>Look on')), steps + 1

    assert steps == 3


def test_hidden_arguments_are_not_searched(app, browse, scheduled):
    scheduled("a", "secret")

    page = browse(app, hide_arguments=True).get("/tasks?text=secret")

    assert page.status == 400
    assert shown(page) == []
    assert page.said.startswith("text is 'secret'; expected no search in arguments")


def test_the_page_says_how_many_tasks_have_a_tag(browser, scheduled):
    for number in range(3):
        scheduled(f"task-{number}", tags=["even"])

    assert "3 tasks on this page; 3 tasks in the store have this tag" in browser.get(
        "/tasks?tag=even"
    ).text  # fmt: skip
    assert "have this tag" not in browser.get("/tasks?tag=even&queue=celery").text
