"""The views beside the lists: the overview, a task, the history, counts by queue, charts."""

import re
from datetime import timedelta

import pytest

from celery_delayq.contrib.web import views, words
from tests.app.support import FAR, LONG_AGO
from tests.web.conftest import IDS
from tests.web.support import FURTHER, counted, ticks, walk, worked

# The overview.


def test_the_overview_has_counts_queues_and_problems(browser, scheduled):
    scheduled("a", queue="mail")
    scheduled("b", at=LONG_AGO)
    page = browser.get("/")
    assert page.status == 200
    assert page.title.endswith("Overview · tests")
    assert "Waiting 2 Overdue 1 " in page.text
    assert "mail 1 0" in page.text
    assert "no scanner is alive: no tasks are delivered" in page.text


def test_the_overview_has_eight_events_and_has_them_last(browser, many):
    page = browser.get("/")
    assert page.text.index("Scanners") < page.text.index("What happened last")
    assert page.html.count('<span class="badge scheduled">') == 8


def test_the_overview_marks_the_dead_and_leads_to_them(browser, task, die):
    assert "The dead tasks" not in browser.get("/").text
    die("dead")
    page = browser.get("/")
    marked = r'<div class="loud"><dt>Dead</dt><dd><a href="/tasks\?state=DEAD">1<'
    assert re.search(marked, page.html)
    assert '<div class="zero"><dt>In flight</dt>' in page.html
    assert "The dead tasks" in page.text


# A task.


def test_the_page_of_a_task_has_its_facts_and_headers(browser, scheduled):
    task = scheduled("a", 42, key="k", tags=["blue"], queue="mail")
    page = browser.get("/task", id="a")
    assert page.title.endswith("Task a · tests")
    for text in ("args [ 42 ]", f"revision {task.revision}", "key k tags blue", "root_id a"):
        assert text in page.text


def test_the_changes_of_a_task_are_above_its_facts(browser, task):
    page = browser.get("/task?id=a").text
    changes, facts, details = map(page.index, ("Change it", "task shop.remind", "Revision, host"))
    assert changes < facts < details < page.index("revision ")


def test_a_task_is_overdue_from_its_due_time_on_as_the_counts_have_it(scheduled):
    task = scheduled("a", at=FAR)
    assert words.state(task, task.due - timedelta(milliseconds=1)) == "scheduled"
    assert words.state(task, task.due) == "overdue"


@pytest.mark.parametrize(
    ("has_left", "said"),
    [
        (True, "task a has been handed over to its queue already, "),
        (False, "task a is not scheduled in redis://"),
    ],
)
def test_a_task_that_left_or_never_was_is_said_to_be_so(app, browser, scheduled, has_left, said):
    if has_left:
        scheduled("a", at=LONG_AGO)
        app.delayq.hand_over()
    page = browser.get("/task", id="a")
    assert (page.status, page.said[: len(said)]) == (404, said)


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


def test_the_page_of_a_task_says_which_one_it_waits_behind_and_until_when(app, browser):
    held = {"key": "k", "unique_until": "finished", "conflict": "replace"}
    for task_id in ("A-first", "second"):
        app.delayq.schedule(app.signature("t").set(task_id=task_id), at=LONG_AGO, **held)
        app.delayq.hand_over()

    page = browser.get("/task", id="second")

    assert "scheduled, behind A-first" in page.text
    until = r"in [^(]+ \(.* UTC\)"
    waits = f"waits behind task A-first, which holds its key until {until} at the latest"
    assert re.search(rf"It {waits}\.", page.text)
    assert re.search(r"behind until \d{4}-\d\d-\d\d ", page.text)
    moved = browser.change(page.action_with("Cancel"), action="run_now")
    assert moved.status == 200
    assert re.fullmatch(f"task second is due now, but {waits}", moved.said)


# The history.


def test_the_history_is_newest_first(app, browser, scheduled):
    scheduled("a", key="k")
    app.delayq.cancel("a")
    for path in ("/history", "/"):
        page = browser.get(path).text
        assert page.index("cancelled a k celery shop.remind") < page.index("scheduled a k celery")
    assert "The last 2 events. At most 100 of tasks are kept" in browser.get("/history").text
    assert "Among the last 100 events" in browser.get("/").text


@pytest.mark.parametrize(
    ("action", "what"),
    [
        ({"action": "reschedule", "value": "by:+1h"}, "rescheduled"),
        ({"action": "cancel"}, "cancelled"),
    ],
    ids=["moved", "cancelled"],
)
def test_a_change_of_many_is_one_line_of_the_history_with_a_link_to_its_tasks(
    app, browser, many, action, what
):
    worked(browser, counted(browser, {}, **action))
    page = browser.get("/history")
    line = next(iter(app.delayq.history(1)))
    assert (line.what, line.count) == (what, len(IDS))
    assert f"{what} {len(IDS)} tasks alice" in " ".join(page.text.split())

    page = browser.get("/history", bulk=line.bulk)

    assert {task_id for task_id in IDS if task_id in page.text} == {*IDS}
    assert " scheduled task" not in page.text
    app.conf.delayq_history = 4
    app.delayq.services.entries.join()
    assert (
        f"Of {len(IDS)} tasks, 4 tasks are listed here"
        in browser.get("/history", bulk=line.bulk).text
    )


def test_ticked_tasks_that_are_changed_are_one_line(app, browser, many):
    ticked = ticks(browser.get("/tasks"))
    browser.change("/selected", sure="1", one=[*ticked.values()], action="run_now")
    assert [(one.what, one.count) for one in app.delayq.history(2)] == [
        ("run_now", len(IDS)), ("scheduled", 1),
    ]  # fmt: skip


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


def test_a_user_with_a_long_name_can_change_tasks(app, browse, task):
    browser = browse(app, user=lambda _: "a\n" + "x" * 10_000)
    assert browser.change("/task?id=a&revision=", action="run_now").status in {200, 409}
    [event, *_] = app.delayq.history()
    assert len(event.actor.encode()) <= 64


def test_no_history_is_said_to_be_kept_without_the_setting(app, browser):
    app.conf.delayq_history = 0
    assert browser.get("/history").said == "Nothing is kept: the setting delayq_history is 0."
    assert "What happened last" not in browser.get("/").text


# Counts by queue, and the charts.


def test_all_waiting_tasks_are_counted_by_queue_in_steps(browser, scheduled, limits):
    limits(web_others_s=0, queues_step=4)
    for number in range(20):
        # Some fall due together: a step can end among them.
        scheduled(f"t{number}", queue=("mail", "slow", "fast")[number % 3], at=FAR + number // 7)

    [*steps, last] = walk(browser, browser.get("/queues"), FURTHER)

    seen = [int(re.search(r"(\d+) tasks? counted so far", page.text)[1]) for page in steps]
    assert len(seen) >= 4
    assert seen == sorted(seen)
    assert "20 tasks counted Queue Waiting fast 6 mail 7 slow 7" in last.text


def test_each_chart_has_the_tasks_of_its_spans(app, browser, scheduled):
    now = app.delayq.counts().now_ms / 1000
    for number, hours in enumerate((-1, 0.5, 0.5, 5, 100, 1000)):
        scheduled(f"task-{number}", at=now + 3600 * hours)
    page = browser.get("/").text
    for span, count in (("hour", 2), ("day", 3), ("week", 4)):
        assert f"In the next {span}: {count} tasks" in page


def test_a_bar_leads_to_its_tasks(app, browser, scheduled, monkeypatch):
    monkeypatch.setattr(views, "SPANS", {"hour": None})
    now = app.delayq.counts().now_ms / 1000
    scheduled("meant", at=now + 1800)
    scheduled("other", at=now + 2400)
    page = browser.get("/")
    assert browser.get(page.url(r'<a href="(/tasks\?after=[^"]*)"')).ids == ["meant"]


def test_the_highest_bar_fills_the_chart_and_one_task_is_seen(app, scheduled, browser):
    now = app.delayq.counts().now_ms / 1000
    for number in range(100):
        scheduled(f"many-{number}", at=now + 600)
    scheduled("one", at=now + 3000)
    heights = re.findall(r'<rect [^>]*height="([\d.]+)"', browser.get("/").html)
    assert heights[:2] == ["120.0", "2.0"]
