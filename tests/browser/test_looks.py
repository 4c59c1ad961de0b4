"""How the pages look: on a phone, in the dark, to a screen reader, to a keyboard."""

import json

import pytest
from axe_playwright_python.sync_playwright import Axe

from tests.browser import shop
from tests.browser.support import says

RULES = {"resultTypes": ["violations"]}


@pytest.fixture
def app(delayq_app, url):
    return delayq_app(url, **shop.SETTINGS)


@pytest.fixture
def filled(app, redis):
    shop.fill(app, redis, waiting=12)
    shop.scan_once(app)


VIEWS = {
    "overview": "/",
    "tasks": "/tasks",
    "task": f"/task?id={shop.id_of(0)}",
    "dead": "/tasks?state=DEAD",
    "an error": "/tasks?after=soon",
}


@pytest.mark.parametrize(("width", "dark"), [(360, False), (1280, True)])
def test_each_view(filled, site, look, width, dark):
    page = look(site, VIEWS["overview"], width=width, dark=dark, allows=["400"])
    axe, found = Axe(), {}

    for name, path in VIEWS.items():
        page.goto(path)
        for summary in page.locator("summary").all():
            summary.click()
        inner, outer = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert inner <= outer, f"{name} scrolls sideways"
        for one in axe.run(page, options=RULES).response["violations"]:
            found.setdefault(f"{one['impact']}: {one['help']}", []).append(
                (name, [node["html"][:200] for node in one["nodes"]])
            )
    assert not found, json.dumps(found, indent=2)
