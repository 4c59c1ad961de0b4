"""Hostile text in every field that reaches a page: it is shown, and nothing of it runs.

The browser ignores the pages' policy here, so only the escaping protects them.
"""

from urllib.parse import quote

import pytest

from celery_delayq.logs import plain
from celery_delayq.web import wsgi
from tests.app.support import FAR, LONG_AGO, claim
from tests.browser.support import press

RUN = "window.pwned=1"
PAYLOADS = {
    "script": f"<script>{RUN}</script>",
    "attribute": f'"><img src=x onerror="{RUN}">',
    "other attribute": f"' autofocus onfocus='{RUN}' x='",
    "end of a field": f"</textarea></title></svg><svg onload={RUN}>",
    "link": f"javascript:{RUN}",
    "template": "{{7*7}}{% raw %}${7*7}",
    "lines": "a\r\nSet-Cookie: pwned=1\r\n\r\n<b>b</b>",
    "right to left": "a\u202egnp.exe\u2066\u200f\x85\xa0b",
    "path": "../..//evil.example/%2F%00?a&b#c;d",
    "long": "x<b>y" * 2000,
}
# The elements of a page that a payload could add.
ADDED = "img, b, svg[onload], [onfocus], [onerror], script:not([src]), a[href^=javascript]"


@pytest.fixture
def app(delayq_app, url):
    """Tasks go through another database, so that each can die for a reason of the test's own."""
    return delayq_app(url, delayq_url=url.replace("/0", "/1"), delayq_history=100)


@pytest.fixture
def page(app, redis, serve, look):
    """It asks for nothing beyond the site, and runs what was not escaped."""
    site = serve(wsgi(app.delayq, allow=lambda _: "write", user=lambda _: "alice"))
    return look(site, bypass_csp=True, allows=["400", "404"])


@pytest.fixture
def whole(page):
    """Check that nothing ran, and that the page has all its parts, and no others."""

    def whole():
        assert page.evaluate("window.pwned") is None
        assert page.locator(ADDED).count() == 0
        parts = page.locator("body > *").evaluate_all("all => all.map(one => one.tagName)")
        assert parts == ["A", "HEADER", "MAIN"]
        text = page.locator("body").text_content()
        assert plain(text.replace("\n", "").replace("\xa0", "")) == text.replace("\n", "")
        return text

    return whole


@pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS)
def test_in_every_field_of_a_task(app, page, whole, payload):
    short = payload[:80]
    for task_id in (short, f"dead {short}"):
        app.send_task(
            payload,
            (payload,),
            {payload: [payload]},
            task_id=task_id,
            queue=short,
            headers={payload[:500]: payload},
            delayq_key=f"{task_id} key",
            delayq_tags=[short, f"{short} tag"],
            delayq_at=LONG_AGO if task_id != short else FAR,
        )
    claimed, _ = claim(app.delayq)
    for engine in app.delayq.services.engines():
        engine.nack("dead", claimed, reason=payload[:500])
        engine.close()
    app.delayq.pause(queue=short)
    app.delayq.pause(task=short)

    views = ("/", "/tasks", "/tasks?state=DEAD", "/paused", "/history", "/queues")
    for path in (*views, f"/task?id={quote(short, safe='')}", f"/task?id=dead%20{quote(short, safe='')}"):
        page.goto(path)
        for one in page.locator("summary").all():
            one.click()
        assert plain(short) in whole(), path
    page.goto("/tasks")
    page.get_by_role("checkbox", name="Tick all").check()
    press(page, "Change the ticked ones")
    assert plain(short) in whole()


@pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS)
def test_in_the_url(page, whole, payload):
    value = quote(payload[:1000], safe="")
    for path, names in {
        "/tasks": ("id", "key", "task", "queue", "tag", "state", "after", "zone", "order", "cursor"),
        "/task": ("id", "revision", payload[:1000]),
        "/all": ("action", "value", "cursor", "begin", "queue"),
        "/work": ("action", "value", "cursor", "of", "queue"),
        "/queues": ("found",),
    }.items():
        for name in names:
            page.goto(f"{path}?action=cancel&{quote(name, safe='')}={value}")
            whole()
    page.goto(f"/tasks?queue={value}")
    typed = page.get_by_label("Queue", exact=True).input_value()
    assert typed == plain(payload[:1000])
    page.goto(f"/{value}")
    whole()
