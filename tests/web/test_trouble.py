"""Redis away, an app without a store, a form that is too large: a page says so."""

import pytest

from tests.support.ports import free_port


@pytest.fixture
def away(delayq_app, browse):
    app = delayq_app(f"redis://127.0.0.1:{free_port()}/0", delayq_timeout=0.2)
    return browse(app)


@pytest.mark.parametrize("path", ["/", "/tasks", "/task?id=a"])
def test_redis_is_away(away, path):
    page = away.get(path)

    assert page.status == 503
    assert page.title == "Redis is away · tests"
    assert "Connection refused" in page.said
    assert '<meta http-equiv="refresh" content="5">' in page.html
    assert page.headers["Retry-After"] == "5"


def test_a_change_while_redis_is_away_is_not_repeated_by_the_page(away):
    page = away.post("/task?id=a", action="cancel")

    assert page.status == 503
    assert "http-equiv" not in page.html


def test_a_wrong_setting(delayq_app, url, browse):
    page = browse(delayq_app(url, delayq_batch_size=0)).get("/")

    assert page.status == 500
    assert page.said.startswith("delayq_batch_size is 0; expected ")


def test_a_wrong_setting_is_said_on_a_page_that_does_not_exist_too(delayq_app, url, browse):
    page = browse(delayq_app(url, delayq_batch_size=0)).get("/nowhere")

    assert page.status == 404
    assert "delayq_batch_size is 0; expected " in page.text


def test_a_form_that_is_too_large(browser, scheduled):
    scheduled("a")

    page = browser.post("/task?id=a", action="edit", args="x" * 2_000_000)

    assert page.status == 413


def test_a_page_that_does_not_exist(browser):
    page = browser.get("/nowhere")

    assert page.status == 404
    assert page.title.endswith("Not Found · tests")
