"""Changes of many by clicking: some, all on a page, all that match, whole queues; rules; views."""

import re

from playwright.sync_api import expect

from celery_delayq.contrib.web import wsgi
from tests.app.support import FAR, LONG_AGO
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


def test_all_tasks_on_a_page_are_ticked_at_once(app, site, look, many):
    page = look(site, "/tasks?queue=mail")

    page.get_by_role("checkbox", name="Tick all tasks on this page").check()
    page.get_by_label("Change", exact=True).select_option("Reschedule")
    page.get_by_label("New due time", exact=True).fill("by:+1h")
    press(page, "Change the ticked…")
    heading = page.get_by_role("heading", level=1)
    expect(heading).to_have_text("Reschedule: 5 tasks, +1h from its due time?")
    press(page, "Reschedule: 5 tasks")

    says(page, "5 tasks of 5 were rescheduled.")
    moved = {task.id for task in app.delayq.tasks() if task.due.timestamp() >= FAR + 3600}
    assert moved == set(IDS[::2])


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
def test_a_queue_is_paused_and_resumed(app, site, look, scheduled, javascript):
    scheduled("a", at=LONG_AGO, queue="mail")
    page = look(site, "/paused", javascript=javascript)

    page.get_by_label("What", exact=True).select_option("a queue")
    page.get_by_label("Name of the queue or the task").fill("mail")
    press(page, "Pause")
    says(page, "queue mail is paused")
    assert app.delayq.hand_over() == 0
    press(page, "Resume queue mail")

    says(page, "queue mail is resumed")
    assert app.delayq.hand_over() == 1


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


@either_way
def test_the_history_leads_to_a_task(app, site, look, scheduled, javascript):
    scheduled("a", key="order:7")
    scheduled("b")
    app.delayq.cancel("b")
    page = look(site, javascript=javascript)
    page.get_by_role("navigation", name="Pages").get_by_role("link", name="History").click()
    expect(page.get_by_role("row").nth(1)).to_contain_text("cancelled")
    page.get_by_role("link", name="a", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text("shop.remind")
    expect(page.locator("[data-copy]")).to_have_text("a")


@either_way
def test_all_tasks_are_counted_queue_by_queue(site, look, many, javascript, limits):
    limits(web_others_s=0)  # each step counts one queue
    page = look(site, "/queues", javascript=javascript)
    if not javascript:
        to_the_end(page, page.get_by_role("link", name="Count on"))
    expect(page.get_by_role("row", name="mail 5")).to_be_visible()
    expect(page.get_by_role("row", name="celery 5")).to_be_visible()
    expect(page.get_by_role("link", name="Count on")).to_have_count(0)


def test_a_bar_of_the_chart_leads_to_its_tasks(app, site, look, scheduled):
    now = app.delayq.counts().now_ms / 1000
    scheduled("meant", at=now + 1800)
    scheduled("later", at=now + 7200)
    page = look(site)
    page.get_by_role("link", name="Next hour, as a table").click()
    page.get_by_role("table", name="By minutes").get_by_role("link", name="List them").click()
    page.get_by_role("checkbox", name="Task meant").wait_for()
    expect(page.get_by_role("checkbox", name="Task later")).to_have_count(0)


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


def test_a_page_comes_back_with_redis(delayq_app, start_redis, serve, look, limits):
    limits(web_again_s=1)
    redis = start_redis()
    app = delayq_app(redis.url())
    redis.stop()
    page = look(serve(wsgi(app.delayq, allow=lambda _: "read")), allows=["503"])
    heading = page.get_by_role("heading", level=1)

    expect(heading).to_have_text("Redis is away")
    redis.start()
    expect(heading).to_have_text("One thing needs a look")
