"""Hostile text in every field that reaches a page: it is shown, and nothing of it runs.

The browser ignores the pages' policy here, so only the escaping protects it.
"""

from urllib.parse import quote

import pytest

from celery_delayq.contrib.web.words import FILTERS
from celery_delayq.core.text import plain
from tests.app.support import FAR, LONG_AGO
from tests.browser.support import follow
from tests.support.places import take

RUN = "window.pwned=1"
# It ends any field, and looks like a link, a template, a header, a path, and text that is reversed.
HOSTILE = (
    f"javascript:{RUN}'\"></textarea></title></svg><script>{RUN}</script><img src=x onerror={RUN}>"
    f"<svg onload={RUN}>{{{{7*7}}}}\r\nSet-Cookie: a=b\r\n\r\n\u202e\u2066\x85\xa0/..//%2F%00?a&b#c"
)
LONG = HOSTILE * 50  # 10 kB
# The elements that it would add.
ADDED = "img, svg[onload], script:not([src]), [href^=javascript]"
QUOTED = quote(HOSTILE, safe="")


@pytest.fixture
def app(delayq_app, url):
    """Tasks leave through another database, so that they can die for a reason of the test's own."""
    return delayq_app(url, delayq_url=url.replace("/0", "/1"), delayq_history=100)


@pytest.fixture
def page(site, look):
    return look(site, bypass_csp=True, allows=["400", "404", "409"])


@pytest.fixture
def whole(page):
    """Return the page's text, after a check that it has all its parts and no others."""

    def whole():
        assert page.evaluate("window.pwned") is None
        assert page.locator(ADDED).count() == 0
        parts = page.locator("body > *").evaluate_all("all => all.map(one => one.tagName)")
        assert parts == ["A"] * page.locator("a.skip").count() + ["HEADER", "MAIN"]
        text = page.locator("body").text_content()
        assert {one for one in text if not one.isprintable()} <= {"\n"}
        return text

    return whole


def test_hostile_text_in_a_field_of_a_task_does_not_run(app, redis, page, whole):
    for task_id, at in ((HOSTILE, FAR), (f"dead {HOSTILE}", LONG_AGO)):
        app.send_task(
            LONG,
            (LONG,),
            {HOSTILE: [LONG]},
            task_id=task_id,
            queue=HOSTILE,
            headers={HOSTILE: LONG},
            delayq_key=f"key {task_id}",
            delayq_tags=[HOSTILE, f"tag {HOSTILE}"],
            delayq_at=at,
        )
    take(app.delayq, "dead", f"dead {HOSTILE}", reason=LONG)
    app.delayq.pause(queue=HOSTILE)
    app.delayq.pause(task=HOSTILE)

    for path, fields in {
        "/": ("{}",),
        "/tasks": ("{}", "key {}", "tag {}"),
        "/tasks?state=DEAD": ("dead {}",),
        "/paused": ("queue {}", "task {}"),
        "/history": ("{}", "key {}"),
        "/queues": ("{}",),
        f"/key?key=key%20{QUOTED}": ("key {}",),
        f"/task?id={QUOTED}": ("{}", "tag {}", "key {}"),
        f"/task?id=dead%20{QUOTED}": ("dead {}",),
    }.items():
        page.goto(path)
        text = whole()
        assert [one for one in fields if plain(one.format(HOSTILE)) not in text] == [], path
    assert page.locator("dd", has_text=plain(LONG)).count() >= 2  # the reason, and a header


def test_hostile_text_in_a_field_of_a_form_does_not_run(app, redis, page, whole):
    app.send_task("t", task_id=HOSTILE, delayq_at=FAR)
    page.goto("/tasks")
    page.get_by_role("checkbox", name="Tick all").check()
    page.get_by_label("Change", exact=True).select_option("Add a tag")
    value = page.get_by_label("Tag to add", exact=True)
    value.fill(LONG)
    follow(page, page.get_by_role("button", name="Change the ticked…"))
    assert "expected text of 1 to 255 bytes" in whole()
    page.get_by_label("Change", exact=True).select_option("Add a tag")
    value.fill(HOSTILE)
    follow(page, page.get_by_role("button", name="Change the ticked…"))
    whole()
    short = page.get_by_role("link", name="javascri", exact=True)
    assert short.get_attribute("title") == plain(HOSTILE)
    follow(page, page.get_by_role("button").last)
    assert plain(HOSTILE) in whole()

    for path, label, button in (
        ("/paused", "Name of the queue or the task", "Pause"),
        (f"/task?id={QUOTED}", "New due time", "Look at this time"),
    ):
        page.goto(path)
        page.get_by_label(label, exact=label == "New due time").fill(HOSTILE)
        follow(page, page.get_by_role("button", name=button, exact=True))
        assert "window.pwned" in whole()


def test_hostile_text_in_the_url_does_not_run(page, whole):
    for path, names in {
        "/tasks?": (*FILTERS, "id", "key", "text", "zone", "order", "cursor"),
        "/task?": ("id",),
        "/all?action=cancel&cursor=x&": ("queue", "action", "value", "cursor", "begin"),
        "/work?action=cancel&of=1&bound=1&cursor=x&": ("queue", "action", "value", "cursor", "of"),
        "/undo?": ("count", "why", "bulk"),
        "/queues?": ("found",),
        "/load?": ("of", "begin", "zone"),
        "/?": (QUOTED,),
    }.items():
        for name in names:
            page.goto(f"{path}{name}={QUOTED}")
            whole()
    page.goto(f"/tasks?queue={QUOTED}")
    assert page.locator(".chip > span").text_content() == f"queue:{plain(HOSTILE)}"
    page.get_by_label("Search: ").fill(HOSTILE)
    page.get_by_role("button", name="Search").click()
    page.locator(".chip").nth(1).wait_for()
    whole()
    page.goto(f"/{QUOTED}")
    whole()
