"""Pauses and resumes."""

import re

import pytest

from tests.app.support import LONG_AGO
from tests.web.support import field, is_wrong


def pause(browser, kind, name="", **form):
    return browser.change("/paused", action="pause", kind=kind, name=name, **form)


def test_a_queue_is_paused_and_resumed(app, browser, scheduled, changed):
    scheduled("a", at=LONG_AGO, queue="mail")

    paused = pause(browser, "queue", "mail")
    assert paused.said == "queue mail is paused"
    assert "queue mail" in browser.get("/").text
    assert [one.queue for one in app.delayq.pauses()] == ["mail"]
    assert app.delayq.hand_over() == 0
    resumed = browser.change(paused.action_with("Resume queue mail"), action="resume")

    assert resumed.said == "queue mail is resumed"
    assert app.delayq.hand_over() == 1
    assert [(one["action"], one["target"], one["user"]) for one in changed] == [
        ("pause", {"queue": "mail"}, "alice"),
        ("resume", {"queue": "mail"}, "alice"),
    ]


def sure(browser, page, action):
    """Press the button of the question whether everything is meant."""
    hidden = dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', page.html))
    return browser.change(page.action_with("everything, for sure"), action=action, **hidden)


def test_everything_is_paused_and_comes_back_at_a_rate(app, browser, scheduled, changed):
    scheduled("a", at=LONG_AGO)
    page = pause(browser, "everything", late="1")
    assert "No task will be delivered until you resume; 1 task is waiting." in page.text
    assert app.delayq.pauses() == changed == []
    page = sure(browser, page, "pause")
    assert page.said == "everything is paused"
    assert app.delayq.pauses()[0].late
    app.delayq.hand_over()
    page = browser.change(page.action_with("Resume everything"), action="resume", rate="0.5")
    assert "The due tasks will be delivered, 0.5 a second; 1 task is waiting." in page.text
    assert not app.delayq.pauses()[0].resumed
    page = sure(browser, page, "resume")
    assert page.said == "everything is resumed"
    assert "resuming 0.5 a second" in page.text
    assert "everything comes back at 0.5 a second" in browser.get("/").text


def test_a_task_is_paused(app, browser):
    page = pause(browser, "task", "shop.remind")
    assert page.said == "task shop.remind is paused"
    assert [one.task for one in app.delayq.pauses()] == ["shop.remind"]


@pytest.mark.parametrize(
    ("name", "note"),
    [
        ("celery", ""),
        ("rare", ""),
        ("celry", ", but this app has no queue 'celry'; did you mean "),
        ("unlike", ", but this app has no queue 'unlike'"),
    ],
)
def test_a_pause_of_an_unknown_queue_says_so(app, browser, scheduled, name, note):
    scheduled("a", queue="rare")
    page = pause(browser, "queue", name)
    assert page.status == 200
    assert page.said.startswith(f"queue {name} is paused{note}")
    assert (", but" in page.said) is bool(note)
    assert [one.queue for one in app.delayq.pauses()] == [name]


def test_a_resume_of_a_queue_that_was_not_paused_says_so(browser):
    page = browser.change("/paused", action="resume", kind="queue", name="mail")
    assert page.said == "queue mail was not paused"


@pytest.mark.parametrize(
    ("kind", "name"), [("everything", "mail"), ("queue", "x" * 600), ("queue", "")]
)
def test_a_pause_that_is_wrong_keeps_its_text(app, browser, kind, name):
    page = pause(browser, kind, name)
    assert page.status == 400
    assert is_wrong(page, "name")
    assert name in field(page, "name")
    assert f'<option value="{kind}" selected>' in page.html
    assert app.delayq.pauses() == []


def test_a_rate_that_is_none_stands_beside_its_own_pause(app, browser):
    rate = "fast"
    for queue in ("mail", "slow"):
        app.delayq.pause(queue=queue)
    path = browser.get("/paused").action_with("Resume queue slow")

    page = browser.change(path, action="resume", rate=rate)

    assert page.status == 400
    tags = page.html.split('name="rate"')[1:]
    assert [f'value="{rate}"' in tag.partition(">")[0] for tag in tags] == [False, True]
    app.delayq.resume(queue="slow")
    assert browser.change(path, action="resume", rate=rate).said.startswith("rate is ")


def test_the_time_of_a_pause_is_one_that_the_script_writes_in_the_zone_of_the_viewer(app, browser):
    app.delayq.pause(queue="mail")
    [pause] = app.delayq.pauses()
    minute = f"{pause.since:%Y-%m-%dT%H:%M}Z"
    assert f'Queue mail is paused since <time datetime="{minute}"' in browser.get().html
