"""The pages in a real browser: Chromium without a window, driven by Playwright.

a test --clicks--> page --HTTP--> a server in a thread --> the app --> Redis
"""

import os
import shutil
import threading
from collections import Counter

import pytest
from werkzeug.serving import make_server

from celery_delayq.web import wsgi
from tests.app.conftest import delayq, delayq_app, redis, redis_client, url
from tests.support.missing import missing
from tests.support.ports import free_port
from tests.web.conftest import app, scheduled

__all__ = ["app", "delayq", "delayq_app", "redis", "redis_client", "scheduled", "url"]

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
# Names of machines that this browser finds on loopback, where the pages are.
OTHER_NAMES = ("evil.example", "site.example")
PATIENCE_MS = 20_000  # for a page, on a busy machine


@pytest.fixture(scope="session")
def chromium():
    """One process of the suite starts it, once."""
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        missing("chromium")
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=PATIENCE_MS)
    rules = ",".join(f"MAP {name} 127.0.0.1" for name in OTHER_NAMES)
    options = [f"--host-resolver-rules={rules}", "--disable-dev-shm-usage"]
    if os.getuid() == 0:
        options.append("--no-sandbox")  # root's browser has none
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program, args=options)
        yield started
        started.close()


@pytest.fixture
def serve():
    """Serve an application of WSGI on a free port; return its address."""
    servers = []

    def serve(application):
        server = make_server("127.0.0.1", free_port(), application, threaded=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        servers.append((server, thread))
        return f"http://127.0.0.1:{server.port}"

    yield serve
    for server, thread in servers:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def site(app, serve):
    """The address of pages on which everything is allowed."""
    return serve(wsgi(app.delayq, allow=lambda _: "write", user=lambda _: "alice"))


@pytest.fixture
def look(chromium):
    """Open a page of a site: ``look(site, "/tasks", javascript=False, width=360, dark=True)``.

    A script's error, and anything that the pages' own policy forbids, fails the test.
    """
    contexts, wrong = [], Counter()

    def look(address, path="/", *, javascript=True, width=1280, dark=False, allows=(), **options):
        context = chromium.new_context(
            base_url=address,
            java_script_enabled=javascript,
            viewport={"width": width, "height": 900},
            color_scheme="dark" if dark else "light",
            timezone_id="Asia/Kolkata",
            locale="en-GB",
            reduced_motion="reduce",
            **options,
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)

        def note(text):
            if not any(part in text for part in allows):
                wrong[text] += 1

        page.on("pageerror", lambda error: note(str(error)))
        page.on("console", lambda said: note(said.text) if said.type == "error" else None)
        page.goto(path)
        return page

    yield look
    for context in contexts:
        context.close()
    assert not wrong
