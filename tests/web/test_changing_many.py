"""Changes of many tasks: a count first, then exactly these tasks, step by step."""

import re
from dataclasses import replace

import pytest

from celery_delayq.contrib.web import bulk
from celery_delayq.core.store import selection_scan
from celery_delayq.core.tasks import selection as selections
from celery_delayq.errors import StoreUnavailable
from celery_delayq.operations import selection as rewriting
from tests.app.support import FAR, LONG_AGO, hand_over_until_dead, redis_ms
from tests.support.waiting import eventually

MOST_STEPS = 20
IDS = [f"task-{number:02}" for number in range(10)]


@pytest.fixture
def many(app, redis):
    """Ten tasks: even ones for the queue mail, with a tag."""
    for number, task_id in enumerate(IDS):
        even = {"queue": "mail", "delayq_tags": ["even"]} if number % 2 == 0 else {}
        app.send_task("shop.remind", (1,), task_id=task_id, delayq_at=FAR + number, **even)
    scheduled_ms = redis_ms(redis)
    eventually(lambda: redis_ms(redis) > scheduled_ms + 1)


@pytest.fixture
def short_steps(monkeypatch):
    """Let each step end after its first few tasks."""
    monkeypatch.setattr(bulk, "is_enough", lambda *_: True)
    monkeypatch.setattr(selections, "CHUNK", 2)
    monkeypatch.setattr(rewriting, "STEP", 2)
    monkeypatch.setattr(selection_scan, "PAGE", 3)


def left(app):
    return [task.id for task in app.delayq.tasks()]


def ticks(page):
    """The values of the checkboxes, by id."""
    found = re.findall(r'name="one" value="([^"]*)" aria-label="Task ([^"]*)"', page.html)
    return {task_id: value for value, task_id in found}


def chosen(browser, filters, **form):
    """Choose all that match a filter; return the first page that counts them."""
    action = browser.get("/tasks", **filters).url(r'formaction="([^"]*)"')
    return browser.get(browser.post(action, **form).location)


def counted(browser, filters, **form):
    """Count all that match; return the page that offers to change them."""
    page = chosen(browser, filters, **form)
    for _ in range(MOST_STEPS):
        if not page.further:
            return page
        page = browser.get(page.further)
    pytest.fail("counting has no end")


def worked(browser, page):
    """Press the button of each step; return the last page, and how many steps it took."""
    for steps in range(MOST_STEPS):
        if "<form" not in page.html:
            return page, steps
        page = browser.get(browser.post(page.action_with("<button")).location)
    pytest.fail("the work has no end")


def test_the_ticked_tasks_are_counted_first_and_then_changed(app, browser, many, changed):
    ticked = ticks(browser.get("/tasks"))
    form = {"one": [ticked[task_id] for task_id in IDS[:3]], "action": "cancel"}

    asked = browser.change("/selected", **form)
    assert "Cancel: 3 tasks" in asked.text
    assert changed == []
    page = browser.change("/selected", sure="1", **form)

    assert page.said == "3 tasks of 3 were cancelled."
    assert "task-00 task task-00 was cancelled" in page.text
    assert left(app) == IDS[3:]
    assert [facts["target"]["task"] for facts in changed] == IDS[:3]


def test_counting_goes_in_steps_too(browser, many, short_steps):
    page, seen = chosen(browser, {}, action="cancel"), []
    while page.further and len(seen) < MOST_STEPS:
        seen.append(int(re.search(r"(\d+) tasks? counted so far", page.text)[1]))
        page = browser.get(page.further)

    assert seen == [3, 6, 9, 10]
    assert "10 tasks match." in page.text


def test_a_ticked_task_that_was_changed_meanwhile_stays(app, browser, many):
    ticked = ticks(browser.get("/tasks"))
    app.delayq.reschedule("task-01", by=60)

    page = browser.change("/selected", sure="1", one=[*ticked.values()], action="cancel")

    assert page.said == "9 tasks of 10 were cancelled."
    assert "task task-01 was changed since you loaded the page" in page.text
    assert left(app) == ["task-01"]


def test_an_id_of_any_characters_can_be_ticked(app, browser):
    hostile = "a b\n\"'<&%2F\u202e"
    app.send_task("shop.remind", (1,), task_id=hostile, delayq_at=FAR)
    [value] = ticks(browser.get("/tasks")).values()

    browser.post("/selected", sure="1", one=value, action="cancel")

    assert left(app) == []


def test_redis_goes_away_among_the_ticked(app, browser, many, monkeypatch):
    ticked, calls = ticks(browser.get("/tasks")), []
    cancel = type(app.delayq).cancel

    def failing(delayq, task_id, **options):
        calls.append(task_id)
        if len(calls) == 2:
            raise StoreUnavailable("cancel", "it is gone")
        return cancel(delayq, task_id, **options)

    monkeypatch.setattr(type(app.delayq), "cancel", failing)
    some = [ticked[task_id] for task_id in IDS[:3]]
    page = browser.change("/selected", sure="1", one=some, action="cancel")

    assert page.status == 503
    assert page.said == "1 task of 3 was cancelled."
    assert (
        "cancel failed: it is gone; the tasks below were not tried task-02 not tried" in page.text
    )
    assert left(app) == IDS[1:]


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ({"action": "cancel"}, "no task is ticked; "),
        ({"action": "edit", "one": "1 a"}, "to edit is for one task"),
        ({"action": "explode", "one": "1 a"}, "action is 'explode'; expected one of "),
        ({"action": "cancel", "one": "x a"}, "revision is 'x'; expected "),
        ({"action": "reschedule", "one": "1 a"}, "to reschedule, type a value"),
        ({"action": "reschedule", "one": "1 a", "value": "soon"}, "'soon' is not a time; "),
        ({"action": "prioritise", "one": "1 a", "value": "x"}, "priority is 'x'; expected "),
    ],
)
def test_a_form_that_is_none(app, browser, many, form, said):
    for more in ({}, {"sure": "1"}):
        page = browser.change("/selected", **form, **more)
        assert page.status == 400
        assert page.said.startswith(said)
    assert left(app) == IDS


FILTERS = {
    "everything": ({}, IDS),
    "a queue": ({"queue": "mail"}, IDS[::2]),
    "a tag": ({"tag": "even"}, IDS[::2]),
    "two tags": ({"tag": ["even", "odd"]}, IDS[::2]),
    "times": ({"after": "2100-01-01T00:00:03", "before": "2100-01-01T00:00:05"}, IDS[3:5]),
}


@pytest.mark.parametrize(("filters", "meant"), FILTERS.values(), ids=FILTERS)
def test_all_that_match_are_changed_and_no_other(app, browser, many, filters, meant):
    page = counted(browser, filters, action="cancel")
    assert f"{len(meant)} tasks match." in page.text
    assert left(app) == IDS
    page, steps = worked(browser, page)

    assert page.said == f"{len(meant)} tasks were cancelled; {len(meant)} tasks were counted."
    assert left(app) == [task_id for task_id in IDS if task_id not in meant]
    assert steps == 1


ACTIONS = {
    "run now": ({"action": "run_now"}, lambda task: task.due.year < 2100),
    "at": ({"action": "reschedule", "value": "2100-02-01"}, lambda task: task.due.month == 2),
    "after": ({"action": "reschedule", "value": "+1h"}, lambda task: task.due.year < 2100),
    "by": ({"action": "reschedule", "value": "by:+1h"}, lambda task: task.due.hour == 1),
    "add": ({"action": "add_tag", "value": "new"}, lambda task: "new" in task.tags),
    "remove": ({"action": "remove_tag", "value": "even"}, lambda task: task.tags == ()),
    "requeue": ({"action": "requeue", "value": "other"}, lambda task: task.queue == "other"),
    "priority": ({"action": "prioritise", "value": "7"}, lambda task: task.priority == 7),
}


@pytest.mark.parametrize("name", ACTIONS)
@pytest.mark.usefixtures("many", "short_steps")
def test_each_action_on_all_in_steps(app, browser, name):
    form, is_done = ACTIONS[name]
    before = {task.id for task in app.delayq.tasks() if is_done(task)}

    page, steps = worked(browser, counted(browser, {"queue": "mail"}, **form))

    assert steps > 1
    assert page.said.startswith("5 tasks were ")
    assert {task.id for task in app.delayq.tasks() if is_done(task)} == before | {*IDS[::2]}


@pytest.mark.parametrize("form", [ACTIONS["by"][0], ACTIONS["after"][0]])
def test_a_step_that_is_repeated_moves_no_task_twice(app, browser, many, short_steps, form):
    page = counted(browser, {}, **form)
    action = page.action_with("<button")
    browser.post(action)
    once = {task.id: task.due for task in app.delayq.tasks()}
    again = browser.get(browser.post(action).location)

    assert {task.id: task.due for task in app.delayq.tasks()} == once
    worked(browser, again)
    moved = {task.id: task.due for task in app.delayq.tasks()}
    assert all(due.hour == 1 or due.year < 2100 for due in moved.values())


def test_tasks_scheduled_after_the_count_are_left(app, browser, many):
    page = counted(browser, {"queue": "mail"}, action="cancel")
    app.send_task("shop.remind", (1,), task_id="new", queue="mail", delayq_at=FAR)

    worked(browser, page)

    assert left(app) == ["new", *IDS[1::2]]


def test_a_reader_counts_nothing_and_changes_nothing(app, browse, browser, many):
    action = counted(browser, {}, action="cancel").action_with("<button")
    reader = browse(app, allow=lambda _: "read")

    assert 'name="one"' not in reader.get("/tasks").html
    for path in (action, "/all?queue=mail", "/selected"):
        assert reader.post(path, action="cancel").status == 403
    assert left(app) == IDS


def test_a_cursor_of_another_selection_is_refused(app, browser, many):
    action = counted(browser, {"queue": "mail"}, action="cancel").action_with("<button")

    for wrong in (
        action.replace("queue=mail", "queue=celery"),
        action.replace("queue=mail", ""),
        re.sub("cursor=[^&]*", "cursor=nothing", action),
        re.sub("cursor=[^&]*", "", action),
        action.replace("bound=", "bound=x"),
    ):
        page = browser.change(wrong)
        assert page.status == 400
    assert left(app) == IDS


def test_redis_goes_away_between_two_steps(app, browser, many, short_steps, monkeypatch):
    page = counted(browser, {}, action="cancel")
    page = browser.get(browser.post(page.action_with("<button")).location)
    so_far = len(IDS) - len(left(app))
    steps, done = selections.changes.cancel, []

    def failing(link, targets, **options):
        if done:
            raise StoreUnavailable("cancel", "it is gone")
        done.append(targets)
        yield from steps(link, targets, **options)

    monkeypatch.setattr(selections.changes, "cancel", failing)
    monkeypatch.setattr(bulk, "is_enough", lambda *_: False)
    broken = browser.change(page.action_with("<button"))
    monkeypatch.setattr(selections.changes, "cancel", steps)

    assert broken.status == 503
    assert "cancel failed: it is gone" in broken.text
    assert f"{so_far + len(done[0])} tasks were cancelled so far" in broken.text
    page, _ = worked(browser, broken)
    assert page.said == "10 tasks were cancelled; 10 tasks were counted."
    assert left(app) == []


@pytest.mark.parametrize(
    ("headers", "is_pressed"),
    [
        ({"Sec-Fetch-Site": "same-origin"}, True),
        ({"Sec-Fetch-Site": "cross-site", "Referer": "http://localhost/work"}, False),
        ({"Sec-Fetch-Site": "none"}, False),
        ({"Referer": "http://localhost/all?x"}, True),
        ({"Referer": "http://localhost.evil.example/"}, False),
        ({"Referer": "http://evil.example/http://localhost/"}, False),
        ({}, False),
    ],
)
@pytest.mark.usefixtures("many", "short_steps")
def test_the_script_presses_no_button_for_a_foreign_link(browser, headers, is_pressed):
    page = browser.post(counted(browser, {}, action="cancel").action_with("<button"))

    progress = browser.get(page.location, headers=headers)

    assert "so far" in progress.text
    assert ("data-press" in progress.html) is is_pressed


def test_times_from_now_are_fixed_by_the_count(app, browser, many, monkeypatch):
    counts, now = type(app.delayq.services.entries).counts, [FAR * 1000 - 10_000]

    def later(entries):
        now[0] += 1000
        return replace(counts(entries), now_ms=now[0])

    monkeypatch.setattr(type(app.delayq.services.entries), "counts", later)
    page = counted(browser, {"after": "+10s", "before": "+15s"}, action="cancel")
    cancelled = int(re.search(r"(\d+) tasks match", page.text)[1])
    page, _ = worked(browser, page)

    assert page.said == f"{cancelled} tasks were cancelled; {cancelled} tasks were counted."
    assert len(left(app)) == 10 - cancelled < 10


def test_redis_goes_away_within_a_move_by_a_span(app, browser, many, monkeypatch):
    page, calls = counted(browser, {}, action="reschedule", value="by:+1h"), []
    reschedule = type(app.delayq).reschedule

    def failing(delayq, task_id, **options):
        calls.append(task_id)
        if len(calls) == 4:
            raise StoreUnavailable("reschedule", "it is gone")
        return reschedule(delayq, task_id, **options)

    monkeypatch.setattr(type(app.delayq), "reschedule", failing)
    broken = browser.change(page.action_with("<button"))
    assert broken.status == 503
    assert "3 tasks were rescheduled so far" in broken.text
    page, _ = worked(browser, broken)

    assert page.said == "10 tasks were rescheduled; 10 tasks were counted."
    moved = [task.due.timestamp() - FAR for task in app.delayq.tasks()]
    assert moved == [3600 + number for number in range(10)]


def test_each_step_is_told(browser, many, short_steps, changed):
    _, steps = worked(browser, counted(browser, {"queue": "mail"}, action="cancel"))

    assert [facts["action"] for facts in changed] == ["cancel"] * steps
    assert {facts["target"]["queue"] for facts in changed} == {"mail"}
    assert sum(facts["answer"] for facts in changed) == 5


def test_the_dead_are_retried_or_removed_together(app, delayq_app, url, browse, redis):
    for task_id in ("a", "b", "c"):
        app.send_task("shop.remind", (1,), task_id=task_id, queue="full", delayq_at=LONG_AGO)
    redis.set("full", "not a list")
    hand_over_until_dead(app.delayq, redis)
    app.send_task("shop.remind", (1,), task_id="waits", delayq_at=FAR)
    browser = browse(app)

    [value, *_] = ticks(browser.get("/tasks?state=DEAD")).values()
    browser.post("/selected", sure="1", one=value, action="retry")
    page, _ = worked(browser, counted(browser, {"state": "DEAD"}, action="remove"))

    assert page.said == "2 tasks were removed; 2 tasks were counted."
    assert {task.id for task in app.delayq.tasks()} == {value.split()[1], "waits"}


FORGED = "this link's figures are not those of a step on these pages; nothing was done"


@pytest.mark.usefixtures("many", "short_steps")
@pytest.mark.parametrize(
    ("old", "new"),
    [("count=4", "count=999999"), ("of=10", "of=11"), ("action=cancel", "action=run_now"),
     ("&sign=", "&sig="), (r"&sign=\w", "&sign=é"), ("$", "&tag=even")],
)  # fmt: skip
def test_the_figures_of_a_step_cannot_be_forged(app, browser, old, new):
    page = chosen(browser, {}, action="cancel")
    while page.further:
        page = browser.get(page.further)
    page = browser.get(browser.post(page.action_with("Cancel")).location)
    page = browser.get(browser.post(page.action_with("Continue")).location)
    step, before = page.action_with("Continue"), left(app)
    forged = re.sub(old, new, step)
    assert forged != step

    for answered in (browser.get(forged), browser.post(forged)):
        assert (answered.status, answered.said) == (400, FORGED)
    assert left(app) == before
    assert browser.post(step).status == 303


@pytest.mark.usefixtures("many")
def test_a_step_signed_for_one_view_is_none_of_another(app, browser):
    page = chosen(browser, {}, action="cancel")
    work = page.action_with("Cancel")

    assert browser.get(work.replace("/work?", "/all?")).said == FORGED


@pytest.mark.usefixtures("many")
def test_a_change_of_many_has_no_default(app, browser):
    page = browser.get("/tasks")
    assert re.search(r'<select[^>]* name="action" required>\s*<option value="">', page.html)

    for path in ("/selected", page.url(r'formaction="([^"]*)"')):
        answered = browser.change(path, one=[*ticks(page).values()], action="")
        assert (answered.status, answered.said) == (400, "choose what to change; nothing was done")
    assert left(app) == IDS
