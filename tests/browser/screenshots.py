"""``python -m tests.browser.screenshots FOLDER [--docs]``: a picture of each view of a shop.

Each view is taken light and dark, on a phone, and on a wide screen. With ``--docs`` it takes the
four pictures of the documentation only.
"""

import argparse
import logging
from contextlib import closing
from pathlib import Path

from celery_delayq import DelayQ
from celery_delayq.contrib.web import wsgi
from tests.browser import shop
from tests.browser.support import browser, page_of, press, served
from tests.support.apps import new_app
from tests.support.redis_server import RedisServer

VIEWS = {
    "overview": "/",
    "tasks": "/tasks",
    "filtered": "/tasks?queue=billing&tag=renewal",
    "task": f"/task?id={shop.id_of(4)}",
    "dead": "/tasks?state=DEAD",
    "dead-task": f"/task?id={shop.id_of(425)}",
    "rules": "/rules",
    "rules-some": "/rules?tag=billing",
    "rules-asks": "/rules?only=digest&asks=1",
    "paused": "/paused",
    "history": "/history",
    "queues": "/queues",
    "error": "/tasks?after=soon",
    "empty": "/tasks?queue=mial",
    "load": "/load?of=day",
    "key": "/key?key=cart:1037",
    "keys": "/keys",
    "history-of": "/history?what=cancelled",
    "delivered": f"/task?id={shop.id_of(405)}",
    "cancelled": f"/task?id={shop.id_of(412)}",
}
LOOKS = {"light": {}, "dark": {"dark": True}, "phone": {"width": 360}, "wide": {"width": 1920}}
HIGHEST = 1600  # of a picture, in pixels
# The pictures of the documentation: where, and what differs from IN_DOCS.
DOCS = {
    "overview": ("/", {}),
    "tasks": ("/tasks?tag=renewal", {}),
    "task": (f"/task?id={shop.id_of(425)}", {"color_scheme": "dark"}),
    "phone": ("/tasks?tag=renewal", {"viewport": {"width": 360, "height": 640}}),
}
IN_DOCS = {"timezone_id": "UTC", "viewport": {"width": 1280, "height": 640}}


def take(page, path):
    height = page.evaluate("document.documentElement.scrollHeight")
    clip = {"x": 0, "y": 0, "width": page.viewport_size["width"], "height": min(height, HIGHEST)}
    page.screenshot(path=path, full_page=True, clip=clip)


def views(page, folder, look):
    for name, path in VIEWS.items():
        page.goto(path)
        take(page, folder / f"{name}-{look}.png")
    page.goto("/tasks?queue=billing")
    page.locator("input[name=one]").first.check()
    page.get_by_label("Change", exact=True).select_option("Reschedule")
    page.get_by_label("New due time", exact=True).fill("by:+2h")
    page.screenshot(path=folder / f"ticked-{look}.png")
    press(page, "Change the ticked…")
    take(page, folder / f"selected-{look}.png")
    page.go_back()
    page.locator("input[name=one]").first.check()
    page.get_by_label("Change", exact=True).select_option("Cancel")
    press(page, "All that match…")
    take(page, folder / f"all-{look}.png")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--docs", action="store_true")
    asked = parser.parse_args()
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    asked.folder.mkdir(parents=True, exist_ok=True)
    with (
        RedisServer() as redis,
        new_app(redis.url(), **shop.SETTINGS) as app,
        closing(DelayQ(app)) as delayq,
        served(wsgi(delayq, allow=lambda _: "write")) as address,
        browser() as started,
    ):
        app.main = "shop"
        shop.fill(app, redis.client())
        shop.set_rules(app)
        shop.scan_once(app)
        if asked.docs:
            for name, (path, differs) in DOCS.items():
                page = page_of(started, address, **{**IN_DOCS, **differs})
                page.goto(path)
                page.screenshot(path=asked.folder / f"web-{name}.png")
            return
        for look, options in LOOKS.items():
            views(page_of(started, address, **options), asked.folder, look)


if __name__ == "__main__":
    main()
