"""The head of each page: the app, its store, its health, and the time of the answer."""

import re

import pytest

from celery_delayq.errors import StoreUnavailable
from tests.app.support import LONG_AGO, hand_over_until_dead

VIEWS = ["/", "/state", "/tasks", "/task?id=none", "/rules", "/paused", "/key?key=k"]
VIEWS += ["/history", "/queues"]


def head_of(page):
    found = re.search(r"<header>.*</header>", page.html, re.DOTALL)
    return " ".join(re.sub("<[^>]*>", " ", found[0]).split())


@pytest.mark.parametrize("path", VIEWS)
def test_each_page_says_whose_it_is_and_whether_all_is_well(app, browser, url, path):
    page = browser.get(path)

    head = head_of(page)
    assert head.startswith(f"tests {url}")
    assert re.search(
        r"no scanner is alive: .* as of \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC Overview", head
    )
    assert page.title.startswith("not delivered in time · ")
    assert page.title.endswith(" · tests")


def test_dead_tasks_are_in_the_title(app, browser, redis):
    app.send_task("shop.remind", (1,), queue="full", delayq_at=LONG_AGO)
    redis.set("full", "not a list")
    hand_over_until_dead(app.delayq, redis)

    page = browser.get("/paused")

    assert page.title == "1 dead · Paused · tests"
    assert "(and 1 more)" in head_of(page)


def test_redis_goes_away_after_a_view_was_made(app, browser, monkeypatch):
    def away(*_):
        raise StoreUnavailable("counts", "it is gone")

    monkeypatch.setattr(type(app.delayq.services.entries), "counts", away)

    page = browser.get("/history")

    assert page.status == 200
    head = head_of(page)
    assert head.endswith("Redis is away no answer Overview Tasks Dead Rules Paused History")
    assert page.title == "Redis is away · History · tests"


def test_a_user_without_access_learns_nothing_of_the_app(app, browse, url):
    page = browse(app, allow=lambda _: None).get("/")

    assert url not in page.html
    assert 'id="state"' not in page.html
    assert page.title == "Forbidden · delayq"
