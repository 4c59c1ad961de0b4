"""The browser and the server of its pages, and what tests do with a page."""

import os
import shutil
import threading
from contextlib import contextmanager

import pytest
from werkzeug.serving import make_server

from tests.support.missing import missing
from tests.support.ports import free_port
from tests.support.waiting import PATIENCE

# The first takes half the CPU of the others, as it cannot show a window.
PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
# Names of machines that this browser finds on loopback, like the pages.
OTHER_NAMES = ("evil.example", "site.example")
PATIENCE_MS = 1000 * PATIENCE

either_way = pytest.mark.parametrize("javascript", [True, False], ids=["script", "no script"])


@contextmanager
def browser():
    """Start a browser without a window."""
    program = next(filter(None, map(shutil.which, PROGRAMS)), None) or missing("chromium")
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=PATIENCE_MS)
    rules = ",".join(f"MAP {name} 127.0.0.1" for name in OTHER_NAMES)
    options = [f"--host-resolver-rules={rules}", "--disable-dev-shm-usage"]
    if os.getuid() == 0:
        options.append("--no-sandbox")  # root's browser has none
    with (
        sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=program, args=options) as started,
    ):
        yield started


@contextmanager
def served(application):
    """Serve an application of WSGI on a free port, in a thread; return its address."""
    server = make_server("127.0.0.1", free_port(), application, threaded=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def page_of(browser, address, *, width=1280, dark=False, **options):
    """A page of a new context, as a user in India has it."""
    options = {
        "viewport": {"width": width, "height": 900},
        "color_scheme": "dark" if dark else "light",
        "timezone_id": "Asia/Kolkata",
        "locale": "en-GB",
        **options,
    }
    context = browser.new_context(base_url=address, reduced_motion="reduce", **options)
    context.set_default_timeout(PATIENCE_MS)
    return context.new_page()


def press(page, name):
    page.get_by_role("button", name=name, exact=True).click()


def follow(page, there):
    """Click it, and wait for the page to which it leads."""
    with page.expect_navigation():
        there.click()


def unfold(page, name):
    page.locator("summary").get_by_text(name, exact=True).first.click()


def says(page, said):
    """Wait until the page says this, as an answer."""
    page.get_by_role("status").get_by_text(said, exact=True).wait_for()
