"""How the pages look: on a phone, in the dark, to a screen reader, to a keyboard."""

import json
import re

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from tests.browser import shop
from tests.browser.support import follow, says

TASK = f"/task?id={shop.id_of(1)}"
VIEWS = {
    "overview": "/",
    "task": TASK,
    "dead": "/tasks?state=DEAD",
    "rules": "/rules",
    "a rule to remove": "/rules?only=digest&asks=1",
    "paused": "/paused",
    "history": "/history",
    "queues": "/queues",
    "an error": "/tasks?after=soon",
    "tasks": "/tasks?queue=billing",  # the last one: the next are reached from it
}
RULES = {"resultTypes": ["violations"]}


@pytest.fixture
def app(delayq_app, url):
    return delayq_app(url, **shop.SETTINGS)


@pytest.fixture
def filled(app, redis):
    shop.fill(app, redis, waiting=12)
    shop.set_rules(app)
    shop.scan_once(app)


@pytest.mark.parametrize(("width", "dark"), [(360, False), (1280, True)])
def test_each_view_is_accessible_and_fits_the_width(app, filled, site, look, width, dark):  # noqa: PLR0917
    page = look(site, width=width, dark=dark, allows=["400", "404"])
    axe, found = Axe(), []

    def audit(name):
        page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
        inner, outer = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert inner <= outer, f"{name} scrolls sideways"
        found.extend(
            (name, one["impact"], one["help"], [node["html"][:200] for node in one["nodes"]])
            for one in axe.run(page, options=RULES).response["violations"]
        )

    for name, path in VIEWS.items():
        page.goto(path)
        audit(name)
    page.get_by_label("Change", exact=True).select_option("Cancel")
    page.get_by_role("checkbox", name="Tick all tasks on this page").check()
    follow(page, page.get_by_role("button", name="Change the ticked ones"))
    audit("the ticked tasks")
    page.go_back()
    follow(page, page.get_by_role("button", name="Count all that match, then change them"))
    audit("all that match")
    follow(page, page.get_by_role("button", name="Cancel: "))
    audit("the last step")
    follow(page, page.get_by_role("button", name="Undo: "))
    audit("a task that is back")
    app.delayq.cancel(shop.id_of(1))
    page.goto(TASK)
    audit("a cancelled task")
    assert not found, json.dumps(found, indent=2)


@pytest.mark.parametrize("width", [1280, 360])
def test_the_change_of_many_stays_in_sight(filled, site, look, width):
    page = look(site, "/tasks", width=width)
    page.set_viewport_size({"width": width, "height": 500})
    page.get_by_role("checkbox", name="Task ").last.check()
    button = page.get_by_role("button", name="Change the ticked ones").bounding_box()
    assert 0 <= button["y"] < 500
    expect(page.get_by_text("Tick all", exact=True)).to_have_css(
        "font-size", "0px" if width > 1000 else "13.6px"
    )


@pytest.mark.parametrize(("width", "height", "most"), [(1280, 800, 15), (360, 740, 4)])
def test_so_many_rows_of_a_filtered_list_are_seen(app, redis, site, look, width, height, most):  # noqa: PLR0917
    shop.fill(app, redis, waiting=200)
    page = look(site, "/tasks?queue=billing&tag=renewal", width=width)
    page.set_viewport_size({"width": width, "height": height})
    boxes = [row.bounding_box() for row in page.locator(".list tbody tr").all()[:20]]
    assert sum(box["y"] + box["height"] <= height for box in boxes) >= most


def test_on_a_phone_the_filter_is_folded_to_what_it_has(filled, site, look):
    page = look(site, "/tasks?queue=billing&tag=renewal", width=360)
    expect(page.get_by_label("Queue", exact=True)).to_be_hidden()
    expect(page.locator(".chips")).to_have_text("queue billing tag renewal")
    page.locator("summary").click()
    expect(page.get_by_label("Queue", exact=True)).to_be_visible()


def test_a_chart_says_what_a_bar_means_to_the_pointer_and_the_keyboard(filled, site, look):
    page = look(site)
    chart = page.locator(".chart").first
    readout = chart.locator(".readout")

    chart.locator("rect").first.hover()
    expect(readout).to_contain_text(re.compile(r"^\d+ tasks?, .* to \d\d:\d\d"))
    said = readout.text_content()
    chart.locator("a").first.focus()
    page.keyboard.press("ArrowRight")
    expect(readout).not_to_have_text(said)
    # The marks are the full ten minutes, hours and days of the viewer's zone.
    marks = chart.locator(".marks text").all_text_contents()
    assert 5 <= len(marks) <= 7
    assert all(mark.endswith("0") for mark in marks)
    days = page.locator(".chart").nth(2).locator(".marks text").all_text_contents()
    assert len(days) in (6, 7)


def test_the_fields_of_the_filters_are_in_line(filled, site, look):
    page = look(site, "/tasks?queue=billing")
    field, choice = (
        page.get_by_label(name, exact=True).bounding_box() for name in ("Tag", "State")
    )
    assert (field["y"], field["height"]) == (choice["y"], choice["height"])


def test_the_keyboard_alone_filters_opens_and_cancels(app, filled, site, look):
    page = look(site, "/tasks")

    def tab_to(there):
        """Press Tab until *there* has the focus, which is seen at each stop."""
        for _ in range(60):
            page.keyboard.press("Tab")
            seen = page.evaluate("getComputedStyle(document.activeElement).outline")
            assert "solid 3px" in seen, page.evaluate("document.activeElement.outerHTML")
            if there.evaluate("one => one === document.activeElement"):
                return
        raise AssertionError(f"Tab does not lead to {there}")

    tab_to(page.get_by_role("link", name="Skip to the content"))
    page.keyboard.press("Enter")
    tab_to(page.get_by_label("Queue", exact=True))
    page.keyboard.type("billing")
    tab_to(page.get_by_role("button", name="Filter"))
    with page.expect_navigation():
        page.keyboard.press("Space")
    tab_to(page.get_by_role("rowheader").get_by_role("link", name=shop.id_of(1)))
    with page.expect_navigation():
        page.keyboard.press("Enter")
    tab_to(page.get_by_role("button", name="Cancel"))
    page.keyboard.press("Space")

    says(page, f"task {shop.id_of(1)} was cancelled")
    assert app.delayq.get(shop.id_of(1)) is None
