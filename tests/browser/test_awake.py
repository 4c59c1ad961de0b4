"""A page that stays open: it says when no server answers, and never shows another's page."""

import re

import pytest
from playwright.sync_api import expect
from werkzeug.wrappers import Response

from celery_delayq.contrib.web import wsgi
from tests.support.waiting import eventually

SECOND = 1_000  # ms


@pytest.fixture
def answers():
    """Answers in place of the pages: none, while it is empty."""
    return []


@pytest.fixture
def open_page(app, serve, look, answers, scheduled):
    scheduled("a")
    pages = wsgi(app.delayq, allow=lambda _: "write")

    def site(environ, start_response):
        return (answers[0] if answers else pages)(environ, start_response)

    page = look(serve(site), allows=["502", "Failed to load"])
    page.clock.install()
    page.reload()
    expect(page.locator(".as-of time")).to_be_visible()
    return page


def test_no_answer_is_said_in_words_over_greyed_numbers(open_page, answers, scheduled):
    answers.append(Response("a proxy's page", 502))
    main = open_page.locator("main")

    open_page.clock.run_for(6 * SECOND)
    expect(main).to_have_css("opacity", "1")
    open_page.clock.run_for(5 * SECOND)
    expect(open_page.get_by_role("alert")).to_contain_text("No answer since ")
    expect(main).to_have_css("opacity", "0.5")

    answers.clear()
    scheduled("b")
    open_page.clock.run_for(6 * SECOND)
    expect(main).to_have_css("opacity", "1")
    expect(open_page.locator(".as-of time")).to_be_visible()
    expect(main.locator(".stats dd").first).to_have_text("2")


def test_a_page_that_does_not_refresh_says_it_too(open_page, answers):
    open_page.get_by_role("navigation", name="Pages").get_by_role("link", name="Tasks").click()
    expect(open_page.get_by_role("heading", name="Tasks")).to_be_visible()
    answers.append(Response("", 502))
    open_page.clock.run_for(16 * SECOND)
    open_page.clock.run_for(16 * SECOND)
    expect(open_page.get_by_role("alert")).to_contain_text("No answer since ")


@pytest.mark.parametrize(
    "login", [Response("<main>Log in</main>", 200, mimetype="text/html"), Response("Log in", 401)]
)
def test_a_login_in_place_of_the_page_is_not_put_into_it(open_page, answers, login):
    answers.append(login)
    open_page.clock.run_for(6 * SECOND)
    expect(open_page.get_by_text("Log in")).to_be_visible()
    expect(open_page.locator("header")).to_have_count(0)


def test_a_redirect_to_a_login_is_followed_by_the_browser(open_page, answers):
    def login(environ, start_response):
        if environ["PATH_INFO"] == "/login":
            return Response("<h1>Log in</h1>", mimetype="text/html")(environ, start_response)
        return Response("", 302, {"Location": "/login"})(environ, start_response)

    answers.append(login)

    open_page.clock.run_for(6 * SECOND)

    expect(open_page.get_by_text("Log in")).to_be_visible()
    assert open_page.url.endswith("/login")


def test_problems_change_the_state_and_the_title(app, open_page):
    expect(open_page.locator("#state")).to_contain_text("not delivered in time")
    icon = open_page.locator("link[rel=icon]")
    expect(icon).to_have_attribute("href", re.compile(r"/alarm\.svg"))
    scanner = app.delayq.scanner()
    scanner.start()
    try:
        eventually(lambda: app.delayq.counts().scanners == 1)
        open_page.clock.run_for(6 * SECOND)
        expect(open_page.locator("#state .badge")).to_have_text("in time")
        expect(open_page.locator("h1")).to_have_text("Tasks are delivered in time")
        expect(icon).to_have_attribute("href", re.compile(r"/icon\.svg"))
        expect(open_page).to_have_title("Overview · tests")
    finally:
        scanner.stop()
