"""Changes of one task by clicking, with the script and without; the store has each effect."""

import pytest
from playwright.sync_api import expect

from tests.app.support import FAR
from tests.browser.support import either_way, press, says, unfold


@pytest.fixture
def opened(site, look, scheduled, javascript):
    """The page of a task."""
    scheduled("other")
    scheduled("a", 7, queue="mail", key="order:7", tags=["blue"])
    return look(site, "/task?id=a", javascript=javascript)


@either_way
def test_from_the_overview_to_a_task_and_away_with_it(app, site, look, scheduled, javascript):
    scheduled("other")
    scheduled("a", queue="mail")
    page = look(site, javascript=javascript)

    page.get_by_role("navigation", name="Pages").get_by_role("link", name="Tasks").click()
    page.get_by_label("Search: ").fill("queue:mail")
    press(page, "Search")
    page.get_by_role("link", name="Without queue:mail").wait_for()
    expect(page.get_by_role("checkbox", name="Task other")).to_have_count(0)
    page.get_by_role("rowheader").get_by_role("link", name="shop.remind").click()
    press(page, "Cancel")

    says(page, "task a was cancelled")
    assert [task.id for task in app.delayq.tasks()] == ["other"]


# The browser is in India; without its script, the app's own zone counts.
@pytest.mark.parametrize(
    ("javascript", "typed", "due"),
    [
        (True, "2100-01-02T05:30", FAR + 86_400),
        (False, "2100-01-02T05:30", FAR + 86_400 + 19_800),
        (True, "by:+90m", FAR + 5400),
        (False, "by:-90m", FAR - 5400),
    ],
)
def test_a_task_is_moved_to_a_typed_time(app, opened, typed, due):
    opened.get_by_label("New due time", exact=True).fill(typed)
    press(opened, "Look at this time")
    press(opened, "Reschedule to then")
    says(opened, "task a was rescheduled")
    assert app.delayq.get("a").due.timestamp() == due


EDITS = {
    "Queue": "post",
    "Key": "order:8",
    "Priority": "3",
    "Tags": "red\nblue green",
    "Args": '[8, "é"]',
    "Kwargs": "{}",
    "Expires": "by:+1h",
}


@either_way
def test_each_field_of_an_edit_is_sent(app, opened):
    unfold(opened, "Edit")
    for label, value in EDITS.items():
        opened.get_by_label(label, exact=True).fill(value)
    press(opened, "Edit")

    says(opened, "task a was edited")
    task = app.delayq.get("a")
    assert (task.queue, task.key, task.priority) == ("post", "order:8", 3)
    assert set(task.tags) == {"red", "blue green"}
    assert (task.args, task.kwargs) == ((8, "é"), {})
    assert task.headers["expires"].startswith("2100-01-01T01:00")


def test_an_edit_changes_only_what_was_typed(app, site, look, scheduled):
    before = scheduled("a", "1\n\xa0\u202e\x85</textarea>", tags=["blue", "green"])
    page = look(site, "/task?id=a")

    unfold(page, "Edit")
    page.get_by_label("Priority").fill("3")
    press(page, "Edit")

    says(page, "task a was edited")
    after = app.delayq.get("a")
    assert after.priority == 3
    assert (after.args, after.tags, after.queue) == (before.args, before.tags, before.queue)


@either_way
def test_a_wrong_time_is_said_beside_its_field_and_back_leads_back(
    app, site, look, scheduled, javascript
):
    before = scheduled("a")
    page = look(site, "/task?id=a", javascript=javascript, allows=["400"])

    page.get_by_label("New due time", exact=True).fill("soon")
    press(page, "Look at this time")

    page.get_by_role("alert").get_by_text("'soon' is not a time; expected").wait_for()
    assert page.get_by_label("New due time", exact=True).input_value() == "soon"
    page.go_back()
    page.get_by_role("button", name="Cancel").wait_for()
    assert app.delayq.get("a") == before


def test_a_time_can_be_picked(app, site, look, scheduled):
    scheduled("a")
    page = look(site, "/task?id=a")
    page.locator("input.picker").first.fill("2100-01-02T05:30")
    press(page, "Look at this time")
    page.get_by_text("It will be due Sat 2 Jan 2100, 05:30 Asia/Calcutta").wait_for()
    press(page, "Reschedule to then")
    says(page, "task a was rescheduled")
    assert app.delayq.get("a").due.timestamp() == FAR + 86_400


@either_way
def test_back_after_a_change_sends_nothing_again(app, opened):
    press(opened, "Run now")
    says(opened, "task a was made due now")
    opened.get_by_role("link", name="Overview").click()
    opened.get_by_role("heading", name="needs a look").wait_for()
    app.delayq.reschedule("a", at=FAR)
    opened.go_back()
    expect(opened.get_by_role("button", name="Run now", exact=True)).to_be_visible()
    expect(opened.locator(".answer")).to_have_count(0)  # it is not so any more
    assert app.delayq.get("a").due.timestamp() == FAR
