"""The buttons of recurring rules on the page, and names of any characters."""

import html
import re

import pytest

from tests.web.test_rules import every, names, waiting

__all__ = ["every"]

HOSTILE = '<b>"&/?#%2F é' + chr(0x202E) + "\n{}'; "
LONG = "é" * 100  # 200 bytes


def act(page, name):
    """The URL to which the buttons of a rule post."""
    return page.action_with(f'aria-label="Run now: {name}"')


def press(browser, name, action, path="/rules"):
    return browser.change(act(browser.get(path), name), action=action)


def buttons(page):
    return re.findall(r'<button name="action"[^>]*>([^<]*)<', page.html)


def test_a_rule_is_paused_and_resumed(app, browser, every, changed):
    every("digest")
    page = press(browser, "digest", "pause")

    assert (page.status, page.said) == (200, "rule digest is paused")
    assert ">paused</span>" in page.html
    assert waiting(app, "digest") == []
    assert buttons(page) == ["Run now", "Resume", "Remove"]
    page = press(browser, "digest", "resume")

    assert page.said == "rule digest is resumed"
    assert buttons(page) == ["Skip next", "Run now", "Pause", "Remove"]
    assert len(waiting(app, "digest")) == 1
    assert [(one["user"], one["action"], one["target"], one["answer"]) for one in changed] == [
        ("alice", "pause", {"rule": "digest"}, True),
        ("alice", "resume", {"rule": "digest"}, True),
    ]


def test_the_answer_stands_on_the_page_with_the_button(browser, every):
    for name in ("digest", "other", "poll"):
        every(name, tags=["x"] if name != "poll" else [])

    assert names(press(browser, "digest", "pause", "/rules?only=digest")) == ["digest"]
    assert names(press(browser, "digest", "resume", "/rules?tag=x")) == ["digest", "other"]
    wrong = browser.change(act(browser.get("/rules?tag=x"), "digest"), action="eat")
    assert (wrong.status, names(wrong)) == (400, ["digest", "other"])


def test_the_next_run_is_skipped_by_the_user(app, browser, every, changed):
    every("digest")
    [run] = waiting(app, "digest")

    page = press(browser, "digest", "skip")

    assert page.said == f"rule digest: the next run, task {run}, is cancelled"
    assert waiting(app, "digest") == []
    assert page.url(r'href="([^"]*)">That run') == f"/task?id={run}"
    assert "That run" not in browser.get("/rules", run=run).text  # no answer names it
    assert [event.actor for event in app.delayq.history(1)] == ["alice"]
    page = press(browser, "digest", "skip")
    assert (page.status, page.said) == (409, "rule digest has no waiting run to skip")
    assert [one["answer"] for one in changed] == [True, False]


def test_a_rule_runs_now_beside_its_schedule(app, browser, every, changed):
    every("digest")
    before = waiting(app, "digest")

    page = press(browser, "digest", "run")

    run = re.fullmatch(r"rule digest runs now, as task (\S+)", page.said)[1]
    assert page.url(r'href="([^"]*)">That run') == f"/task?id={run}"
    assert app.delayq.hand_over() == 1
    assert waiting(app, "digest") == before
    assert [(one["action"], one["answer"]) for one in changed] == [("run", True)]


def test_a_rule_is_removed_after_a_question(app, browser, every, changed):
    every("digest", tags=["x"])
    every("other", tags=["x"])
    page = press(browser, "digest", "remove", "/rules?tag=x")

    assert page.status == 200
    assert "Remove rule digest? Its waiting runs are cancelled" in page.text
    assert app.delayq.rule("digest")
    assert names(browser.get(page.url(r'href="([^"]*)">Keep it'))) == ["digest", "other"]
    assert changed == []
    page = browser.change(page.action_with("Keep it"), action="remove", sure="1")

    assert (page.status, page.said) == (200, "rule digest is removed")
    assert names(page) == ["other"]
    assert app.delayq.rule("digest") is None
    assert waiting(app, "digest") == []
    assert [(one["action"], one["answer"]) for one in changed] == [("remove", True)]


@pytest.mark.parametrize("action", ["skip", "run", "pause", "remove"])
def test_a_rule_that_was_changed_meanwhile_is_left(app, browser, every, action):
    every("digest")
    seen = act(browser.get("/rules"), "digest")
    every("digest", "0 10 * * *")
    before = waiting(app, "digest")

    page = browser.change(seen, action=action, sure="1")

    assert page.status == 409
    assert page.said == ("rule digest was changed since you loaded the page; nothing was done")
    assert (app.delayq.rule("digest").is_paused, waiting(app, "digest")) == (False, before)


def test_a_rule_that_was_removed_meanwhile(app, browser, every):
    every("digest")
    seen = act(browser.get("/rules"), "digest")
    app.delayq.rule("digest").remove()

    page = browser.change(seen, action="pause")

    assert (page.status, page.said) == (409, "there is no rule digest any more")


def test_arguments_that_do_not_fit_the_task_any_more(app, browser, every):
    every("digest")
    del app.tasks["shop.remind"]

    @app.task(name="shop.remind")
    def remind():
        pass

    page = press(browser, "digest", "run")

    assert page.status == 400
    assert page.said.startswith("rule digest: ")
    assert "expected arguments that fit the task" in page.said


@pytest.mark.parametrize(
    ("path", "form"),
    [
        ("/rules?rule=digest", {}),
        ("/rules?rule=digest", {"action": "eat"}),
        ("/rules", {"action": "pause"}),
        ("/rules?rule=" + "x" * 201, {"action": "pause"}),
    ],
)
def test_a_form_that_is_none(app, browser, every, path, form):
    every("digest")
    page = browser.change(path, **form)
    assert page.status == 400
    assert page.said
    assert not app.delayq.rule("digest").is_paused


def test_a_reader_changes_no_rule(app, browse, every):
    every("digest")
    reader = browse(app, allow=lambda _: "read")
    page = reader.get("/rules?only=digest&asks=1")

    assert names(page) == ["digest"]
    assert 'method="post"' not in page.html
    for action in ("skip", "run", "pause", "remove"):
        assert reader.post("/rules?rule=digest", action=action, sure="1").status == 403
    assert len(waiting(app, "digest")) == 1


def test_a_form_from_elsewhere_changes_no_rule(app, browser, every):
    every("digest")
    path = act(browser.get("/rules"), "digest")
    page = browser.post(path, headers={"Sec-Fetch-Site": "cross-site"}, action="pause")
    assert page.status == 403
    assert not app.delayq.rule("digest").is_paused


@pytest.mark.parametrize("name", [HOSTILE, LONG, " ", "a+b", "{rule}"])
def test_a_name_of_any_characters(app, browser, every, name):
    every(name, tags=[HOSTILE])

    page = browser.get("/rules")
    assert "<b>" not in page.html
    paths = {*re.findall(r'<form method="post" action="([^"]*)"', page.html)}
    [path] = map(html.unescape, paths)
    assert browser.change(path, action="pause").status == 200
    assert app.delayq.rule(name).is_paused
    app.delayq.rule(name).resume()
    for found in ({"only": name}, {"name": name}, {"tag": HOSTILE}):
        assert len(names(browser.get("/rules", **found))) == 1
    [run] = waiting(app, name)
    task = browser.get("/task", id=run)
    assert len(names(browser.get(task.url(r'A run of rule <a href="([^"]*)"')))) == 1
    asked = browser.change(browser.get("/rules").action_with("Remove"), action="remove")
    done = browser.change(asked.action_with("Keep it"), action="remove", sure="1")
    assert done.status == 200
    assert app.delayq.rule(name) is None


def test_an_answer_that_no_url_has_room_for_is_said_all_the_same(app, browser, every):
    every("digest")
    revision = app.delayq.rule("digest").revision
    path = f"/rules?rule=digest&revision={revision}&name={'x' * 4000}"

    page = browser.post(path, action="pause")

    assert (page.status, page.said) == (200, "rule digest is paused")
