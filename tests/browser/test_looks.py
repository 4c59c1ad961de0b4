"""How the pages look: on a phone, in the dark, to a screen reader, to a keyboard."""

import json

import pytest
from axe_playwright_python.sync_playwright import Axe

from tests.browser import shop
from tests.browser.support import press, says

TASK = f"/task?id={shop.id_of(1)}"
VIEWS = {
    "overview": "/",
    "task": TASK,
    "dead": "/tasks?state=DEAD",
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
    shop.scan_once(app)


@pytest.mark.parametrize(("width", "dark"), [(360, False), (1280, True)])
def test_each_view_is_accessible_and_fits_the_width(filled, site, look, width, dark):
    page = look(site, width=width, dark=dark, allows=["400"])
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
    press(page, "Change the ticked ones")
    audit("the ticked tasks")
    page.go_back()
    press(page, "Count all that match, then change them")
    audit("all that match")
    page.get_by_role("button", name="Cancel: ").click()
    audit("the last step")
    assert not found, json.dumps(found, indent=2)


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
    tab_to(page.locator("summary"))
    page.keyboard.press("Space")
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
