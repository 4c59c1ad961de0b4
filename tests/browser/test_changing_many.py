"""Changes of many by clicking: some, all on a page, all that match, whole queues; rules; views."""

import re

from playwright.sync_api import expect

from tests.browser.support import either_way, follow, press, says
from tests.rules.support import every
from tests.web.conftest import IDS
from tests.web.support import left


@either_way
def test_the_ticked_tasks_are_changed(app, site, look, many, javascript):
    page = look(site, "/tasks", javascript=javascript)

    for task_id in ("task-01", "task-04"):
        page.get_by_role("checkbox", name=f"Task {task_id}", exact=True).check()
    page.get_by_label("Change", exact=True).select_option("Cancel")
    press(page, "Change the ticked…")
    assert left(app) == IDS
    press(page, "Cancel: 2 tasks")

    says(page, "2 tasks of 2 were cancelled.")
    assert left(app) == [task_id for task_id in IDS if task_id not in ("task-01", "task-04")]


def chosen(page):
    """Choose all tasks of the queue mail, and have them counted."""
    follow(page, page.get_by_role("link", name="Change all that match…"))
    page.get_by_label("Change", exact=True).select_option("Cancel")
    follow(page, page.get_by_role("button", name="All that match…", exact=True))


def to_the_end(page, further):
    """Click it on each page that has it."""
    while further.count():
        follow(page, further)


def test_all_that_match_are_changed_in_steps_without_a_script(app, site, look, many, short_steps):
    page = look(site, "/tasks?queue=mail", javascript=False)

    chosen(page)
    to_the_end(page, page.get_by_role("link", name="Count on"))
    assert left(app) == IDS
    further = page.get_by_role("button", name="Continue")
    follow(page, page.get_by_role("button", name="Cancel: 5 tasks"))
    follow(page, further)
    page.reload()
    so_far = len(IDS) - len(left(app))
    assert 0 < so_far < 5
    says(page, f"{so_far} tasks were cancelled so far; 5 tasks were counted.")
    to_the_end(page, further)

    says(page, "5 tasks were cancelled; 5 tasks were counted.")
    assert left(app) == IDS[1::2]


def test_the_script_changes_all_that_match_despite_a_reload(app, site, look, many, short_steps):
    page, steps = look(site, "/tasks?queue=mail"), []

    def stop_at_the_second(route):
        if route.request.method == "POST":
            steps.append(route.request.url)
            if len(steps) > 1:
                return route.abort("aborted")
        return route.continue_()

    page.route(re.compile(r"/work\?"), stop_at_the_second)
    chosen(page)
    with page.expect_event("requestfailed", lambda request: "/work?" in request.url):
        press(page, "Cancel: 5 tasks")
    page.unroute_all(behavior="wait")
    so_far = len(IDS) - len(left(app))
    assert 0 < so_far < 5
    says(page, f"{so_far} tasks were cancelled so far; 5 tasks were counted.")
    page.reload()

    says(page, "5 tasks were cancelled; 5 tasks were counted.")
    assert left(app) == IDS[1::2]


@either_way
def test_each_button_of_a_rule_can_be_pressed(app, site, look, javascript):
    every(app.delayq, "digest", app.tasks["shop.remind"].s(1), "0 9 * * *", tz="Europe/Berlin")
    [run] = [task.id for task in app.delayq.tasks(tag="every:digest")]
    page = look(site, "/rules", javascript=javascript)

    def press_of_rule(name):
        page.get_by_label("Change rule digest").click()
        press(page, f"{name}: digest")

    press_of_rule("Skip next")
    page.get_by_role("status").get_by_text("is skipped").wait_for()
    assert run not in [task.id for task in app.delayq.tasks()]
    press_of_rule("Pause")
    says(page, "rule digest is paused")
    press_of_rule("Resume")
    says(page, "rule digest is resumed")
    press_of_rule("Run now")
    follow(page, page.get_by_role("link", name="That run"))
    follow(page, page.get_by_role("link", name="digest", exact=True))
    press_of_rule("Remove")
    assert app.delayq.rule("digest")
    press(page, "Remove rule digest")
    says(page, "rule digest is removed")

    assert app.delayq.rules() == []


def test_the_overview_loads_anew_by_itself_until_it_is_stopped(site, look, scheduled):
    page = look(site)
    page.clock.install()
    page.reload()
    waiting = page.locator(".stats").get_by_role("link", name="1", exact=True)

    expect(waiting).to_have_count(0)
    scheduled("a")
    page.clock.run_for(5000)
    expect(waiting).to_have_count(1)
    press(page, "Stop refreshing")
    requests = []
    page.on("request", lambda request: requests.append(request.url))
    page.clock.run_for(60_000)
    assert requests == []
