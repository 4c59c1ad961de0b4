"""Changes of many tasks: a question and a count first, then exactly these tasks, step by step."""

import re
from dataclasses import replace

import pytest

from tests.app.support import FAR
from tests.support.waiting import PATIENCE
from tests.web.conftest import IDS
from tests.web.support import (
    FORGED,
    FURTHER,
    chosen,
    counted,
    field,
    is_wrong,
    left,
    ticks,
    walk,
    worked,
)

GONE = "NOREPLICAS Not enough good replicas to write."


def to_all(page):
    """The URL of the button that counts all that match."""
    return page.url(r'formaction="([^"]*)"')


# The ticked ones.


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


def test_a_ticked_task_that_was_changed_meanwhile_stays(app, browser, many):
    ticked = ticks(browser.get("/tasks"))
    app.delayq.reschedule("task-01", by=60)
    page = browser.change("/selected", sure="1", one=[*ticked.values()], action="cancel")
    assert page.said == "9 tasks of 10 were cancelled."
    assert "task task-01 was changed since you loaded the page" in page.text
    assert left(app) == ["task-01"]


def test_only_a_ticked_task_that_was_read_and_is_gone_is_said_to_be_gone(app, browser, many):
    ticked = [*ticks(browser.get("/tasks")).values()]
    assert "no longer waits" not in browser.change("/selected", one=ticked, action="cancel").text
    app.delayq.cancel("task-01")
    asked = browser.change("/selected", one=ticked, action="cancel").text
    assert asked.count("no longer waits task-01") == asked.count("no longer waits") == 1


def test_an_id_of_any_characters_can_be_ticked(app, browser, scheduled):
    scheduled("a b\n\"'<&%2F\u202e")
    [value] = ticks(browser.get("/tasks")).values()
    browser.post("/selected", sure="1", one=value, action="cancel")
    assert left(app) == []


def test_ids_that_are_too_long_for_a_url_can_be_ticked(browser, scheduled):
    for number in range(20):
        scheduled(f"{number:02}" + "x" * 198)
    some = [*ticks(browser.get("/tasks")).values()]
    asked = browser.post("/selected", one=some, action="cancel")
    done = browser.post("/selected", one=some, action="cancel", sure="1")
    assert (asked.status, done.status) == (200, 200)
    assert "20 tasks of 20 were cancelled." in done.text


def test_the_answer_for_ticked_tasks_has_a_url_that_cannot_be_forged(browser, many):
    [one, *_] = ticks(browser.get("/tasks")).values()
    answer = browser.post("/selected", sure="1", one=one, action="cancel").location
    assert browser.get(answer).said == "1 task of 1 was cancelled."
    assert browser.get(answer.replace("done+", "not_found+")).status == 400
    assert browser.get("/selected?action=cancel&outcome=done+a+").status == 400


def test_redis_goes_away_among_the_ticked(app, browser, many, go_away):
    ticked = ticks(browser.get("/tasks"))
    go_away("cancel", at=2)
    some = [ticked[task_id] for task_id in IDS[:3]]
    page = browser.change("/selected", sure="1", one=some, action="cancel")
    assert (page.status, page.said) == (503, "1 task of 3 was cancelled.")
    untried = f"cancel failed: {GONE}; the tasks below were not tried task-02 not done not tried"
    assert untried in page.text
    assert left(app) == IDS[1:]


# All that match.


def test_counting_goes_in_steps_too(browser, many, short_steps):
    [*steps, last] = walk(browser, chosen(browser, {}, action="cancel"), FURTHER)
    counts = [re.search(r"(\d+) tasks? counted so far", page.text)[1] for page in steps]
    assert counts == ["3", "6", "9", "10"]
    assert "10 tasks match." in last.text


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
    assert page.ids == meant[:5]
    assert (f"The first 5 of {len(meant)} " in page.text) is (len(meant) > 5)
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
def test_each_action_reaches_all_that_match_in_steps(app, browser, name):
    form, is_done = ACTIONS[name]
    before = {task.id for task in app.delayq.tasks() if is_done(task)}
    page, steps = worked(browser, counted(browser, {"queue": "mail"}, **form))
    assert steps > 1
    assert page.said.startswith("5 tasks were ")
    assert {task.id for task in app.delayq.tasks() if is_done(task)} == before | {*IDS[::2]}


@pytest.mark.parametrize("name", [name for name in ACTIONS if name != "run now"])
def test_the_buttons_have_the_value(browser, many, name):
    form, _ = ACTIONS[name]
    ticked = browser.change("/selected", one=[*ticks(browser.get("/tasks")).values()], **form)
    shown = {
        "at": " to Mon 1 Feb 2100, 00:00 UTC, in [0-9,]+ d( [0-9]+ h)?",
        "after": r" to \w{3} \d+ \w{3} \d{4}, [0-9:]+ UTC, in (1 h|59 min)",
        "by": r", \+1h from its due time",
    }.get(name, f", {re.escape(form['value'])}")

    for asked in (ticked, counted(browser, {}, **form)):
        heading = re.search("<h1>(.*?)</h1>", asked.html)[1]
        assert re.search(rf": 10 tasks{shown}\?$", heading)
        assert re.search(r'<button [^>]*class="primary">[^<]*: 10 tasks</button>', asked.html)


def test_a_value_that_the_change_does_not_take_is_not_shown(browser, many):
    form = {"action": "cancel", "value": "ignored"}
    for page in (browser.change("/selected", one="1 a", **form), counted(browser, {}, **form)):
        assert "ignored" not in page.text


@pytest.mark.parametrize("form", [ACTIONS["by"][0], ACTIONS["after"][0]])
def test_a_step_that_is_repeated_moves_no_task_twice(app, browser, many, short_steps, form):
    page = counted(browser, {}, **form)
    action = page.action_with("foot-buttons")
    browser.post(action)
    once = {task.id: task.due for task in app.delayq.tasks()}
    again = browser.get(browser.post(action).location)
    assert {task.id: task.due for task in app.delayq.tasks()} == once
    worked(browser, again)
    assert all(task.due.hour == 1 or task.due.year < 2100 for task in app.delayq.tasks())


def test_tasks_scheduled_after_the_count_are_left(app, browser, many, scheduled):
    page = counted(browser, {"queue": "mail"}, action="cancel")
    scheduled("new", queue="mail")
    worked(browser, page)
    assert left(app) == ["new", *IDS[1::2]]


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


def test_redis_goes_away_among_the_steps_of_a_move_which_moves_no_task_twice(  # noqa: PLR0917
    app, browser, many, short_steps, limits, go_away
):
    page = counted(browser, {}, action="reschedule", value="by:+1h")
    page = browser.get(browser.post(page.action_with("foot-buttons")).location)
    so_far = sum(task.due.hour for task in app.delayq.tasks())
    go_away("reschedule", at=2)
    limits(web_bulk_s=PATIENCE)
    broken = browser.change(page.action_with("foot-buttons"))

    assert broken.status == 503
    assert f"reschedule failed: {GONE}" in broken.text
    # A move by a span goes one by one.
    assert sum(task.due.hour for task in app.delayq.tasks()) == so_far + 1
    assert f"{so_far + 1} tasks were rescheduled so far" in broken.text
    page, _ = worked(browser, broken)
    assert page.said == "10 tasks were rescheduled; 10 tasks were counted."
    moved = [task.due.timestamp() - FAR for task in app.delayq.tasks()]
    assert moved == [3600 + number for number in range(10)]


def test_each_step_is_told(browser, many, short_steps, changed):
    _, steps = worked(browser, counted(browser, {"queue": "mail"}, action="cancel"))
    assert [facts["action"] for facts in changed] == ["cancel"] * steps
    assert {facts["target"]["queue"] for facts in changed} == {"mail"}
    assert sum(facts["answer"] for facts in changed) == 5


def test_the_dead_are_retried_or_removed_together(app, browser, die, scheduled):
    die("a", "b", "c")
    scheduled("waits")
    [value, *_] = ticks(browser.get("/tasks?state=DEAD")).values()
    browser.post("/selected", sure="1", one=value, action="retry")
    page, _ = worked(browser, counted(browser, {"state": "DEAD"}, action="remove"))
    assert page.said == "2 tasks were removed; 2 tasks were counted."
    assert {*left(app)} == {value.split()[1], "waits"}


# The sender of a step, and the fields that go along.


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("queue=mail", "queue=celery"),
        ("queue=mail", ""),
        ("cursor=[^&]*", "cursor=nothing"),
        ("cursor=[^&]*", ""),
        ("bound=", "bound=x"),
    ],
)
def test_a_cursor_of_another_selection_is_refused(app, browser, many, old, new):
    action = counted(browser, {"queue": "mail"}, action="cancel").action_with("foot-buttons")
    assert browser.change(re.sub(old, new, action)).status == 400
    assert left(app) == IDS


@pytest.mark.usefixtures("many", "short_steps")
@pytest.mark.parametrize(
    ("old", "new"),
    [("count=4", "count=999999"), ("of=10", "of=11"), ("action=cancel", "action=run_now"),
     ("&sign=", "&sig="), (r"&sign=\w", "&sign=é"), ("$", "&tag=even")],
)  # fmt: skip
def test_the_figures_of_a_step_cannot_be_forged(app, browser, old, new):
    page = counted(browser, {}, action="cancel")
    for button in ("Cancel", "Continue"):
        page = browser.get(browser.post(page.action_with(button)).location)
    step, before = page.action_with("Continue"), left(app)
    forged = re.sub(old, new, step)
    assert forged != step

    for answered in (browser.get(forged), browser.post(forged)):
        assert (answered.status, answered.said) == (400, FORGED)
    assert left(app) == before
    assert browser.post(step).status == 303


def test_a_step_signed_for_one_view_is_none_of_another(browser, many):
    work = chosen(browser, {}, action="cancel").action_with("Cancel")
    assert browser.get(work.replace("/work?", "/all?")).said == FORGED


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
    page = browser.post(counted(browser, {}, action="cancel").action_with("foot-buttons"))
    progress = browser.get(page.location, headers=headers)
    assert "so far" in progress.text
    assert ("data-press" in progress.html) is is_pressed


# A form that is wrong.

KINDS = ("time", "add_tags", "remove_tags", "queue", "priority")  # of values, each with a field


@pytest.mark.parametrize("is_all", [False, True], ids=["ticked", "all"])
@pytest.mark.parametrize(
    ("wrong", "action", "typed", "said"),
    [
        ("action", "", "mail", "choose what to change; nothing was done"),
        ("value-time", "reschedule", "tomorow", "'tomorow' is not a time; "),
        ("value-time", "reschedule", "3/4/2100", "'3/4/2100' has no time of day"),
        ("value-time", "reschedule", "", "to reschedule, type a value"),
        ("value-priority", "prioritise", "x", "priority is 'x'; expected "),
        ("value-add_tags", "add_tag", "t" * 600, "tag is "),
        ("value-queue", "requeue", "", "to move to a queue, type a value"),
    ],
)
def test_a_change_of_many_that_is_wrong_leads_back_to_the_list(  # noqa: PLR0917
    app, browser, many, is_all, wrong, action, typed, said
):
    kind = "queue" if wrong == "action" else wrong.partition("-")[2]
    form = {f"value-{each}": "" for each in KINDS} | {f"value-{kind}": typed, "action": action}
    page = browser.get("/tasks", tag="even", order="latest")
    assert re.search(r'<select[^>]* name="action" required>\s*<option value="">', page.html)
    some = [] if is_all else [*ticks(page).values()][:2]
    path = to_all(page) if is_all else page.action_with("Change the ticked")

    answered = browser.change(path, one=some, **form)

    assert (answered.status, answered.said[: len(said)]) == (400, said)
    assert is_wrong(answered, wrong)
    assert answered.html.count('aria-invalid="true"') == answered.html.count('class="wrong"') == 1
    if action:
        assert f'<option value="{action}" selected>' in answered.html
    assert f'value="{typed}"' in field(answered, f"value-{kind}")
    assert [*ticks(answered)] == [*ticks(page)]
    assert answered.html.count(" checked") == len(some)
    assert left(app) == IDS


@pytest.mark.parametrize("sure", ["", "1"])
@pytest.mark.parametrize(
    ("form", "said"),
    [
        ({"action": "cancel"}, "no task is ticked; "),
        ({"action": "edit", "one": "1 a"}, "to edit is for one task"),
        ({"action": "explode", "one": "1 a"}, "action is 'explode'; expected one of "),
        ({"action": "cancel", "one": "x a"}, "revision is 'x'; expected "),
        ({"action": "reschedule", "one": "1 a", "value": "soon"}, "'soon' is not a time; "),
    ],
)
def test_a_form_for_ticked_tasks_that_is_none_is_refused(app, browser, many, form, said, sure):  # noqa: PLR0917
    page = browser.change("/selected", **form, **({"sure": sure} if sure else {}))
    assert (page.status, page.said[: len(said)]) == (400, said)
    assert left(app) == IDS


def test_a_value_that_no_url_can_carry_leaves_the_ticks(browser, many):
    page = browser.get("/tasks", tag="even")
    form = {"one": [*ticks(page).values()][:2], "action": "add_tag"}
    path = page.action_with("Change the ticked")
    answered = browser.change(path, **form, **{"value-add_tags": "t" * 10_000})
    assert answered.status == 400
    assert answered.said.startswith("tag is 'ttt")
    assert is_wrong(answered, "value-add_tags")
    assert answered.html.count(" checked") == 2


# The way back.


def test_each_way_back_leads_to_the_list_with_its_filter_zone_and_place(browser, many):
    where = {"tag": "even", "order": "latest", "zone": "Europe/Berlin"}
    where |= {"before": "31 Jan 2101 9:00"}
    listed = browser.get("/tasks", **where)
    one = {"one": [*ticks(listed).values()][:1], "action": "run_now"}

    task = browser.get(listed.url(r'<th scope="row" class="task"><a href="([^"]*)"'))
    told = browser.change(task.action_with("Look at"), action="look", value="2 Jan 2101 9:00")
    moved = browser.change(told.action_with("to then"), action="reschedule", value="+1h")
    asked = browser.change(listed.action_with("Change the ticked"), **one)
    done = browser.change(asked.action_with("Run now"), sure="1", **one)
    whole = counted(browser, where, action="cancel")
    worked_off, _ = worked(browser, whole)

    for page in (task, told, moved, asked, done, whole, worked_off):
        back = page.url(r'<p class="trail"><a href="([^"]*)">Tasks<')
        query = dict(pair.split("=") for pair in back.partition("?")[2].split("&"))
        assert query == where | {"before": "31+Jan+2101+9:00"}


@pytest.mark.parametrize(
    ("back", "to"),
    [
        ("//evil.example/?tag=x&next=y", "/tasks"),
        ("tag=x&next=//evil.example", "/tasks?tag=x"),
        ("tag=" + "x" * 2_000, "/tasks"),
    ],
)
def test_a_way_back_leads_nowhere_else(browser, task, back, to):
    page = browser.get("/task", id="a", back=back)
    assert page.url(r'<p class="trail"><a href="([^"]*)">Tasks<') == to
    assert "evil.example" not in page.html


# What a question says before a change of many: one time for all, and what can be undone.


SAME = "get the same time"


def asked(browser, how, **form):
    """The question about the tasks that have the tag even."""
    if how == "all":
        return counted(browser, {"tag": "even"}, **form)
    ticked = ticks(browser.get("/tasks?tag=even"))
    return browser.change("/selected", one=[*ticked.values()], **form)


def instead(browser, page):
    """Press the button that asks about a move by a span."""
    form = re.search(r'<div class="answer warn".*?</form>', page.html, re.DOTALL)[0]
    pairs = re.findall(r'name="(\w+)" value="([^"]*)"', form)
    fields = {name: [value for key, value in pairs if key == name] for name, _ in pairs}
    url = browser.post(re.search('action="([^"]*)"', form)[1], **fields).location
    [*_, page] = walk(browser, browser.get(url), FURTHER)
    return page


HOW = pytest.mark.parametrize("how", ["all", "ticked"])


@HOW
@pytest.mark.usefixtures("many")
@pytest.mark.parametrize(
    ("value", "by"),
    [
        ("in 2 h", "+2h"),
        ("2100-01-01T01:01:01Z", "+1h1m1s"),
        ("2099-12-31T00:00:00Z", "-1d"),
    ],
)
def test_a_move_of_many_to_one_time_warns_and_offers_a_span(app, browser, how, value, by):
    page = asked(browser, how, action="reschedule", value=value)
    assert f"All 5 tasks {SAME}" in page.text
    assert f"Move each by {by} instead…" in page.text

    page = instead(browser, page)

    assert SAME not in page.text
    assert f"{by} from its due time" in page.title + page.text
    before = {task.id: task.due for task in app.delayq.tasks(tag="even")}
    if how == "all":
        worked(browser, page)
    else:
        fields = re.findall(r'name="(one|value)" value="([^"]*)"', page.html)
        ones = [value for name, value in fields if name == "one"]
        browser.post("/selected", sure="1", action="reschedule", value=f"by:{by}", one=ones)
    moved = {task.due - before[task.id] for task in app.delayq.tasks(tag="even")}
    assert len(moved) == 1
    assert moved != {before["task-00"] - before["task-00"]}


@HOW
def test_no_warning_where_one_time_makes_no_difference(app, browser, scheduled, how):
    for task_id in "ab":
        scheduled(task_id, tags=["even"])
    assert SAME not in asked(browser, how, action="reschedule", value="in 2 h").text
    scheduled("c", at=FAR + 1, tags=["even"])
    assert SAME in asked(browser, how, action="reschedule", value="in 2 h").text
    assert SAME not in asked(browser, how, action="reschedule", value="by:+2h").text
    assert SAME not in asked(browser, how, action="cancel").text


@HOW
@pytest.mark.usefixtures("many")
@pytest.mark.parametrize(
    ("undo", "said"),
    [
        (0, "This cannot be undone : this app keeps nothing for that (delayq_undo)"),
        (
            (3600, 2),
            "The last 2 can be undone , for 1 h. For the other 3 that is not certain: this app",
        ),
        ((7200, 5), "You can undo this for 2 h."),
    ],
)
def test_before_a_cancel_it_is_said_how_many_can_be_undone(app, browser, how, undo, said):
    app.conf.delayq_undo = undo
    assert said in asked(browser, how, action="cancel").text
    assert "undo" not in asked(browser, how, action="add_tag", value="x").text.lower()


@HOW
@pytest.mark.usefixtures("many")
def test_the_warning_shows_no_hidden_arguments(app, browse, how):
    app.delayq.edit("task-00", args=["its secret"])
    assert "its secret" in asked(browse(app), how, action="reschedule", value="in 2 h").text
    reader = browse(app, hide_arguments=True)
    assert "its secret" not in asked(reader, how, action="reschedule", value="in 2 h").html
