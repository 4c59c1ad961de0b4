"""Lists for which Redis has to look: in steps, and each task once."""

import pytest

from celery_delayq.contrib.web import looking
from tests.app.support import FAR, LONG_AGO


@pytest.fixture
def all_pages(browser):
    """Follow a list to its end: the ids of each page."""

    def all_pages(**query):
        page, found = browser.get("/tasks", **query), []
        while len(found) < 100:
            assert page.status == 200
            found.append([word for word in page.text.split() if word.startswith("task-")])
            rest = page.url('rel="next" href="([^"]*)"') or page.url('href="([^"]*)"[^>]*>Look on')
            if not rest:
                return found
            page = browser.get(rest)
        return pytest.fail("the list has no end")

    return all_pages


@pytest.fixture
def short_steps(monkeypatch):
    """Look at three tasks in each request."""
    monkeypatch.setattr(looking, "SECOND", 0)
    monkeypatch.setattr(looking, "LOOK", 3)


@pytest.fixture
def many(app):
    """Forty tasks, every fifth for the queue rare; some overdue, some due together, some far."""
    dues = [LONG_AGO, LONG_AGO + 1, FAR, FAR, FAR, FAR + 0.001, FAR + 5_000_000, FAR + 5_000_001]
    for number in range(40):
        queue = "rare" if number % 5 == 0 else "celery"
        due = dues[number % 8]
        app.send_task("shop.remind", (1,), task_id=f"task-{number}", queue=queue, delayq_at=due)


QUERIES = [
    {"queue": "rare"},
    {"queue": ["rare", "celery"]},
    {"task": "shop.remind"},
    {"queue": "rare", "after": "2100-01-01"},
    {"queue": "rare", "before": "2100-01-01T00:00:00.001"},
    {"queue": "nothing"},
]


@pytest.mark.parametrize("order", ["", "latest"])
@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.usefixtures("many", "short_steps")
def test_each_task_is_listed_once_and_in_order(app, all_pages, query, order):
    names = {"after": "after_due", "before": "before_due"}
    picking = {names.get(name, name): value for name, value in query.items()}
    expected = [task.id for task in app.delayq.tasks(**picking, newest_first=bool(order))]

    pages = all_pages(**query, order=order)

    assert [task_id for page in pages for task_id in page] == expected
    assert len(pages) > 1


@pytest.mark.usefixtures("many")
def test_pages_are_full_where_there_is_time(app, all_pages, monkeypatch):
    monkeypatch.setattr(looking, "SHOWN", 7)
    monkeypatch.setattr(looking, "LOOK", 3)
    expected = [task.id for task in app.delayq.tasks(queue="celery")]

    pages = all_pages(queue="celery")

    assert [task_id for page in pages for task_id in page] == expected
    assert [len(page) for page in pages] == [7, 7, 7, 7, 4]


@pytest.mark.usefixtures("many", "short_steps")
def test_tasks_that_are_not_paused_are_looked_for_in_steps(app, all_pages):
    app.delayq.pause(queue="rare")
    app.delayq.hand_over()
    expected = [task.id for task in app.delayq.tasks() if task.state == "SCHEDULED"]

    pages = all_pages(state="SCHEDULED")

    assert [task_id for page in pages for task_id in page] == expected
    assert len(pages) > len(expected)


@pytest.mark.usefixtures("many", "short_steps")
def test_a_step_says_how_far_it_looked_and_can_be_stopped(browser):
    page = browser.get("/tasks", queue="nothing")

    assert page.said.startswith("For this filter, Redis looks at all waiting tasks, and it has ")
    assert "data-follow" in page.html
    assert '<a href="/tasks">stop</a>' in page.html
    # A page with tasks stays until the user goes on.
    assert "data-follow" not in browser.get("/tasks", queue=["rare", "celery"]).html


@pytest.mark.parametrize("at", ["x", "-1", "1" * 30])
def test_a_place_that_is_none(browser, scheduled, at):
    scheduled("a")

    assert browser.get("/tasks", queue="mail", at=at).status == 400
