"""Pauses, the history, counts by queue, and the chart of what falls due."""

import re

import pytest

from celery_delayq import Outcome
from celery_delayq.contrib.web import others, views
from celery_delayq.core.store import queue_counts
from tests.app.support import FAR, LONG_AGO


def test_a_queue_is_paused_and_resumed(app, browser, scheduled, changed):
    scheduled("a", at=LONG_AGO, queue="mail")

    paused = browser.change("/paused", action="pause", kind="queue", name="mail")
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


def test_everything_is_paused_and_comes_back_at_a_rate(app, browser, scheduled):
    scheduled("a", at=LONG_AGO)
    page = browser.change("/paused", action="pause", kind="everything", name="", late="1")
    assert app.delayq.pauses()[0].late
    app.delayq.hand_over()

    page = browser.change(page.action_with("Resume everything"), action="resume", rate="0.5")

    assert page.said == "everything is resumed"
    assert "comes back at 0.5 a second" in page.text


def test_a_task_is_paused(app, browser):
    page = browser.change("/paused", action="pause", kind="task", name="shop.remind")

    assert page.said == "task shop.remind is paused"
    assert [one.task for one in app.delayq.pauses()] == ["shop.remind"]


@pytest.mark.parametrize(
    ("name", "note"),
    [
        ("celery", ""),
        ("rare", ""),
        (
            "celry",
            ", but this app has no queue 'celry'; did you mean ",
        ),
        ("unlike", ", but this app has no queue 'unlike'"),
    ],
)
def test_a_pause_of_an_unknown_queue_says_so(app, browser, scheduled, name, note):
    scheduled("a", queue="rare")

    page = browser.change("/paused", action="pause", kind="queue", name=name)

    assert page.status == 200
    assert page.said.startswith(f"queue {name} is paused{note}")
    assert (", but" in page.said) is bool(note)
    assert [pause.queue for pause in app.delayq.pauses()] == [name]


def test_a_resume_of_a_queue_that_was_not_paused_says_so(browser):
    page = browser.change("/paused", action="resume", kind="queue", name="mail")

    assert page.said == "queue mail was not paused"


@pytest.fixture
def held(app):
    """A key that a delivered task holds, and the page of the task that waits behind it."""
    for task_id in ("first", "next"):
        app.delayq.schedule(
            app.signature("t").set(task_id=task_id),
            after=0,
            key="k",
            conflict="replace",
            unique_until="finished",
        )
        app.delayq.hand_over()
    return app.delayq.holder(key="k")


def test_a_key_that_is_held_is_freed_for_the_task_behind_it(app, browser, changed, held):
    page = browser.get("/task?id=next")
    assert "What holds its key" in page.text
    page = browser.get("/key?key=k")
    assert "task first holds the key 'k'; it was delivered" in page.text
    assert "at the latest, as its delivery set it." in page.text

    page = browser.change(page.action_with("Free the key"), action="free")

    assert page.said == "key k is free"
    assert "task next holds the key 'k', and waits" in page.text
    assert "Free the key" not in page.text
    assert [(one["action"], one["target"], one["answer"]) for one in changed] == [
        ("free", {"key": "k"}, Outcome.DONE)
    ]


def test_only_the_delivery_that_was_seen_loses_its_key(app, browse, browser, held):
    reader = browse(app, allow=lambda _: "read")
    page, path = browser.get("/key?key=k"), f"/key?key=k&seen={held.delivery}"
    assert "Free the key" not in reader.get("/key?key=k").text
    assert reader.post(path, action="free").status == 403
    assert browser.change(path, action="eat").status == 400
    app.delayq.free(key="k")

    page = browser.change(page.action_with("Free the key"), action="free")

    assert (page.status, page.said) == (
        409,
        "another task holds the key 'k' by now; nothing was changed",
    )
    assert "no task holds the key 'none'." in browser.get("/key?key=none").text
    assert browser.get("/key?key=").status == 400


@pytest.mark.parametrize(
    "form",
    [
        {"action": "pause", "kind": "queue", "name": ""},
        {"action": "pause", "kind": "everything", "name": "mail"},
        {"action": "pause", "kind": "planet", "name": "mars"},
        {"action": "pause", "name": "mars"},
        {"action": "stop", "kind": "queue", "name": "mail"},
        {"kind": "queue", "name": "mail"},
        {"action": "pause", "kind": "task", "name": "x" * 600},
        {"action": "resume", "kind": "queue", "name": "mail", "rate": "fast"},
        {"action": "resume", "kind": "queue", "name": "mail", "rate": "-1"},
        {"action": "resume", "kind": "queue", "name": "mail", "rate": "nan"},
    ],
)
def test_a_form_that_is_none(app, browser, form):
    page = browser.change("/paused", **form)

    assert page.status == 400
    assert page.said
    assert app.delayq.pauses() == []


def test_a_reader_pauses_nothing(app, browse):
    reader = browse(app, allow=lambda _: "read")

    assert "<form" not in reader.get("/paused").html
    assert reader.post("/paused", action="pause", kind="everything").status == 403
    assert app.delayq.pauses() == []


def test_the_history_is_newest_first(app, browser, scheduled):
    scheduled("a", key="k")
    app.delayq.cancel("a")

    for path in ("/history", "/"):
        page = browser.get(path).text
        assert page.index("cancelled a k celery shop.remind") < page.index("scheduled a k celery")
    assert "The last 2 events, of at most 100 that are kept" in browser.get("/history").text
    assert "Among the last 100 events" in browser.get("/").text


def test_the_history_and_the_page_of_a_task_say_who_did_what(app, browser, scheduled):
    page, path = scheduled("a"), "/task?id=a"
    browser.change(f"{path}&revision={page.revision}", action="reschedule", value="by:+1h")
    browser.change("/paused", action="pause", kind="queue", name="mail")
    for number in range(3):
        scheduled(f"b{number}", tags=["x"])
    with app.delayq.acting("bob"):
        app.delayq.select(tag="x").reschedule(by=60)

    history = browser.get("/history").text
    assert "rescheduled 3 tasks bob" in history
    assert "paused queue mail mail alice" in history
    own = browser.get(path).text.partition("What happened to it")[2]
    assert re.search("rescheduled alice .* scheduled$", own)


def test_a_user_with_a_long_name_can_change_tasks(app, browse, scheduled):
    scheduled("a")
    browser = browse(app, user=lambda _: "a\n" + "x" * 10_000)

    assert browser.change("/task?id=a&revision=", action="run_now").status in {200, 409}
    [event, *_] = app.delayq.history()
    assert len(event.actor.encode()) <= 64


def test_no_history_is_kept(app, browser):
    app.conf.delayq_history = 0

    assert browser.get("/history").said == "Nothing is kept: the setting delayq_history is 0."
    assert "What happened last" not in browser.get("/").text


def test_all_waiting_tasks_are_counted_by_queue_in_steps(app, browser, monkeypatch):
    monkeypatch.setattr(others, "SECOND", 0)
    monkeypatch.setattr(queue_counts, "STEP", 4)
    for number in range(20):
        queue = ("mail", "slow", "fast")[number % 3]
        # Some fall due together: a step can end among them.
        due = FAR + number // 7
        app.send_task("shop.remind", (1,), task_id=f"t{number}", queue=queue, delayq_at=due)

    page, seen = browser.get("/queues"), []
    while page.further and len(seen) < 20:
        seen.append(int(re.search(r"(\d+) tasks? counted so far", page.text)[1]))
        page = browser.get(page.further)

    assert len(seen) >= 4
    assert seen == sorted(seen)
    assert "20 tasks counted Queue Waiting fast 6 mail 7 slow 7" in page.text


@pytest.mark.parametrize(
    "query",
    [
        *({"found": text} for text in ("x mail", "3", "", "-1 mail")),
        *({"place": text} for text in ("x", "0:x:1", "9:-1:-1", "0:-1", "0:1:-2", "-1:1:1")),
    ],
)
def test_counts_that_are_none(browser, query):
    assert browser.get("/queues", **query).status == 400


def test_each_chart_has_the_tasks_of_its_spans(app, browser, scheduled):
    now = app.delayq.counts().now_ms / 1000
    for number, hours in enumerate((-1, 0.5, 0.5, 5, 100, 1000)):
        scheduled(f"task-{number}", at=now + 3600 * hours)

    page = browser.get("/").text

    assert "In the next hour: 2 tasks" in page
    assert "In the next day: 3 tasks" in page
    assert "In the next week: 4 tasks" in page


def test_a_bar_leads_to_its_tasks(app, browser, scheduled, monkeypatch):
    monkeypatch.setattr(views, "SPANS", {"hour": None})
    now = app.delayq.counts().now_ms / 1000
    scheduled("meant", at=now + 1800)
    scheduled("other", at=now + 2400)

    page = browser.get("/")
    found = browser.get(page.url(r'<a href="(/tasks\?after=[^"]*)"')).text
    assert "meant" in found
    assert "other" not in found


def test_the_highest_bar_fills_the_chart_and_one_task_is_seen(app, scheduled, browser):
    now = app.delayq.counts().now_ms / 1000
    for number in range(100):
        scheduled(f"many-{number}", at=now + 600)
    scheduled("one", at=now + 3000)

    heights = re.findall(r'<rect [^>]*height="([\d.]+)"', browser.get("/").html)

    assert heights[:2] == ["120.0", "2.0"]
