"""What a question says before a change of many: one time for all, and what can be undone."""

import re

import pytest

from tests.app.support import FAR
from tests.web.support import FURTHER, counted, ticks, walk, worked

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
