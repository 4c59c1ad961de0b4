"""Who may see the pages and send their forms, and the requests that no page leads to."""

import logging
import re

import pytest
from werkzeug.exceptions import abort
from werkzeug.utils import redirect
from werkzeug.wrappers import Request

from celery_delayq.contrib.web import wsgi
from tests.app.support import LONG_AGO
from tests.web.support import counted

# The users that may see the pages, the origins of forms, and the files that a page may load.


CHANGE = {"action": "cancel"}


def test_the_pages_are_not_made_unless_one_says_who_may_see_them(app):
    with pytest.raises(TypeError, match="allow"):
        wsgi(app.delayq)


@pytest.mark.parametrize("answer", [None, False, True, "", "admin"])
def test_the_pages_are_closed_unless_they_are_opened(app, browse, task, answer, caplog):
    browser = browse(app, allow=lambda _: answer, user=lambda _: pytest.fail("it is not needed"))
    with caplog.at_level(logging.ERROR, "celery_delayq"):
        pages = [browser.get(path) for path in ("/", "/tasks", "/task?id=a", "/static/page.css")]
        pages.append(browser.post("/task?id=a", **CHANGE))
    assert [page.status for page in pages] == [403] * 5
    assert pages[0].said == "these pages are closed to you"
    assert app.delayq.get("a") is not None
    assert (f"allow returned {answer!r}" in caplog.text) is (answer is not None)


def test_allow_may_ask_for_a_login(app, browse):
    browser = browse(app, allow=lambda _: abort(redirect("/login")))
    page = browser.get("/tasks")
    assert (page.status, page.location) == (302, "/login")
    assert "frame-ancestors 'none'" in page.headers["Content-Security-Policy"]


@pytest.fixture
def some_of_each(app, browser, scheduled):
    """Something to change on each page; the page of a step that works a selection off."""
    app.conf.delayq_undo = (3600, 100)
    scheduled("a")
    scheduled("gone")
    app.delayq.cancel("gone")
    scheduled("holder", at=LONG_AGO, key="k", unique_until="finished")
    app.delayq.hand_over()
    app.delayq.every("r", app.tasks["shop.remind"].s(1), "0 9 * * *")
    app.delayq.pause(queue="mail")
    return counted(browser, {}, action="cancel").action_with("foot-buttons")


SEEN = (
    *("/task?id=a", "/tasks", "/paused", "/paused?kind=everything&asks=pause", "/key?key=k"),
    *("/keys", "/rules?only=r", "/rules?only=r&asks=1", "/task?id=gone"),
)
SENT = {
    "/task?id=a": [CHANGE],
    "/all?queue=mail": [CHANGE],
    "/selected": [CHANGE],
    "/undo": [{"one": "gone"}],
    "/paused": [{"action": "pause", "kind": "everything", "sure": "1"}],
    "/key?key=k&seen=x": [{"action": "free"}],
    "/rules?rule=r": [
        {"action": action, "sure": "1"}
        for action in ("skip", "edit", "back_to_code", "run", "pause", "remove")
    ],
}


def test_a_reader_sees_no_form_and_changes_nothing(app, browse, some_of_each):
    browser, before = browse(app, allow=lambda _: "read"), [*app.delayq.dump()]
    for path in SEEN:
        page = browser.get(path)
        assert page.status == 200
        # The form around a list has no field and no button for a reader.
        assert ('method="post"' in page.html) == (path == "/tasks"), path
        assert 'name="one"' not in page.html
        assert "Free" not in page.text
    for path, forms in {**SENT, some_of_each: [CHANGE]}.items():
        for form in forms:
            page = browser.post(path, **form)
            assert (page.status, path) == (403, path)
            assert page.said == "you may look, but not change anything; nothing was changed"
    after = [*app.delayq.dump()]
    assert after[1:] == before[1:]  # without the time of the dump


NO_SITE = {"Sec-Fetch-Site": None}


@pytest.mark.parametrize(
    ("headers", "is_refused"),
    [
        ({"Sec-Fetch-Site": "same-origin"}, False),
        ({"Sec-Fetch-Site": "same-origin", "Origin": "http://localhost"}, False),
        ({"Sec-Fetch-Site": "cross-site"}, True),
        ({"Sec-Fetch-Site": "same-site"}, True),
        ({"Sec-Fetch-Site": "none"}, True),
        ({"Sec-Fetch-Site": "cross-site", "Origin": "http://localhost"}, True),
        ({}, True),
        ({"Origin": "http://localhost"}, False),
        ({"Origin": "http://localhost:81"}, True),
        ({"Origin": "https://localhost"}, True),
        ({"Origin": "http://evil.example"}, True),
        ({"Origin": "http://localhost.evil.example"}, True),
        ({"Origin": "null"}, True),
        ({"Origin": "https://admin.example"}, False),
        ({"Origin": "https://admin.example", "Sec-Fetch-Site": "cross-site"}, False),
    ],
)
def test_a_form_from_elsewhere_changes_nothing(app, browse, task, headers, is_refused):
    browser = browse(app, trusted_origins=["https://admin.example/"])
    page = browser.post("/task?id=a", headers={**NO_SITE, **headers}, **CHANGE)
    assert page.status == (403 if is_refused else 303)
    assert (app.delayq.get("a") is not None) is is_refused
    if is_refused:
        assert page.said.startswith("this form was not sent from these pages, so nothing was ")


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LOCALHOST:5556", 200),
        ("127.0.0.1:5556", 200),
        ("[::1]:5556", 200),
        ("evil.example", 421),
        ("localhost.evil.example", 421),
        ("evil.example:5556", 421),
        ("[", 421),
    ],
)
def test_a_foreign_name_for_this_machine_is_refused(app, browse, host, status):
    browser = browse(app, hosts=["localhost", "127.0.0.1", "::1"])
    assert browser.get("/", headers={"Host": host}).status == status


@pytest.mark.parametrize("path", ["/", "/tasks", "/task?id=a", "/nowhere", "/tasks?after=x"])
def test_each_page_has_its_headers(browser, path):
    headers = browser.get(path).headers

    policy = dict(one.split(" ", 1) for one in headers["Content-Security-Policy"].split("; "))
    assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["form-action"] == "'self'"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Cache-Control"] == "no-store"
    assert headers["Content-Type"] == "text/html; charset=utf-8"
    # With "no-referrer" browsers would send "Origin: null" with the pages' own forms.
    assert headers["Referrer-Policy"] == "same-origin"
    assert "Set-Cookie" not in headers


@pytest.mark.parametrize("path", ["/", "/tasks", "/task?id=a"])
def test_no_page_has_a_script_or_style_of_its_own(browser, task, path):
    page = browser.get(path).html
    assert "style=" not in page
    assert "<style" not in page
    assert not re.search(r"<[^>]*\son\w+=", page)
    assert page.count("<script") == page.count("<script src=") == 1


def test_files_are_kept_by_browsers_as_their_url_has_a_hash(browser):
    for kind in ("href", "src"):
        url = browser.get("/").html.partition(f'{kind}="/static/')[2].partition('"')[0]
        assert "?v=" in url
        answered = browser.get(f"/static/{url}")
        assert answered.status == 200
        assert "immutable" in answered.headers["Cache-Control"]


@pytest.mark.parametrize("name", ["nothing.css", "..%2Fapp.py", "../app.py"])
def test_no_other_file_is_served(browser, name):
    assert browser.get(f"/static/{name}").status == 404


@pytest.mark.parametrize(
    ("method", "path"), [("PUT", "/task?id=a"), ("POST", "/tasks"), ("DELETE", "/")]
)
def test_a_page_refuses_other_methods(browser, method, path):
    response = browser.ask(method, path)
    assert response.status_code == 405
    assert "GET" in response.headers["Allow"]


def test_the_pages_work_under_any_path(app, browse, task):
    browser = browse(app, path="/ops/delayq")
    for path in ("/", "", "/tasks"):
        page = browser.get(path)
        assert page.status == 200
        assert 'href="/ops/delayq/tasks"' in page.html
        assert 'src="/ops/delayq/static/page.js?v=' in page.html
    action = browser.get("/task?id=a").action_with("Cancel")
    assert action.startswith("/ops/delayq/task?id=a&revision=")


def test_allow_gets_werkzeug_s_request(app, browse):
    seen = []
    browser = browse(app, allow=lambda request: seen.append(request) or "read")
    browser.get("/tasks", queue="mail")
    assert isinstance(seen[0], Request)
    assert seen[0].args["queue"] == "mail"


# URLs and forms that no page leads to: each is refused in a sentence, and changes nothing.


# Of each page, what a person or a program can get wrong; see the first of each kind for its form.
QUERIES = {
    "/tasks": (
        "after=soon after=%2B1h&after=%2B2h before=2300-01-01 after=2100-01-01&zone=Middle/Earth "
        "state=tired order=random id=a&queue=mail id=a&key=k cursor=nothing "
        f"state=DEAD&cursor=nothing queue=mail&at=x queue=mail&at=-1 queue=mail&at={'1' * 30} "
        f"tag={'x' * 300}"
    ),
    "/queues": "found=3+mail",  # not signed
    "/rules": "place=x place=0 place=-1:0 place=0:-1 place=0:x place=111:0",
    "/key": "key=",
    "/undo": "count=999",
}


@pytest.mark.parametrize(
    "address", [f"{path}?{query}" for path, queries in QUERIES.items() for query in queries.split()]
)
def test_a_url_that_is_none_is_refused(browser, task, address):
    page = browser.get(address)
    assert page.status == 400
    assert page.said
    if address.startswith("/tasks") and "at=" not in address:
        assert "expected" in page.said


TASK = "/task?id=a"
SEEN_TASK = "/task?id=a&revision={}"
PAUSE = {"action": "pause", "kind": "queue", "name": "mail"}
FORMS = [
    (TASK, {"action": "explode"}, "action is 'explode'; expected one of "),
    (TASK, {}, "choose what to change; nothing was done"),
    ("/task", {"action": "cancel"}, "the id is missing"),
    ("/task?id=" + "a" * 600, {"action": "cancel"}, "task_id is "),
    (f"{TASK}&revision=x", {"action": "cancel"}, "revision is 'x'; expected "),
    (f"{TASK}&revision=-1", {"action": "cancel"}, "revision is '-1'; expected "),
    (f"{TASK}&revision=99999999999999999999999", {"action": "cancel"}, "if_revision is "),
    (TASK, {"action": "reschedule"}, "to reschedule, type a value"),
    (TASK, {"action": "reschedule", "value": "90"}, "'90' is not a time; expected +90"),
    (
        TASK,
        {"action": "reschedule", "value": "2100-01-01T00:00", "zone": "../x"},
        "zone is '../x'; expected a time zone that this machine knows, ",
    ),
    (
        SEEN_TASK,
        {"action": "edit"},
        "the task has all of these values already; nothing was changed",
    ),
    (SEEN_TASK, {"action": "edit", "kwargs": '{"colour": 1}'}, "arguments is "),
    ("/paused", {**PAUSE, "kind": "planet"}, ""),
    ("/paused", {"action": "pause", "name": "mars"}, ""),
    ("/paused", {**PAUSE, "action": "stop"}, ""),
    ("/paused", {"kind": "queue", "name": "mail"}, ""),
    ("/paused", {**PAUSE, "kind": "task", "name": "x" * 600}, ""),
    ("/key?key=k&seen=", {"action": "eat"}, ""),
    ("/rules?rule=r", {}, ""),
    ("/rules?rule=r", {"action": "eat"}, ""),
    ("/rules", {"action": "pause"}, ""),
    ("/rules?rule=" + "x" * 201, {"action": "pause"}, ""),
    ("/undo", {}, "no task is named"),
]


@pytest.mark.parametrize(("path", "form", "said"), FORMS)
def test_a_form_that_is_none_is_refused_and_changes_nothing(app, browser, task, path, form, said):  # noqa: PLR0917
    app.delayq.every("r", app.tasks["shop.remind"].s(1), "0 9 * * *")
    page = browser.change(path.format(task.revision), **form)
    assert page.status == 400
    assert page.said
    assert page.said.startswith(said)
    assert app.delayq.get("a") == task
    assert app.delayq.pauses() == []
    assert not app.delayq.rule("r").is_paused


def test_a_question_about_no_task_is_refused(browser):
    page = browser.get("/selected?action=cancel")
    assert (page.status, page.said.startswith("no task is ticked")) == (400, True)
