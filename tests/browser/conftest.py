"""The pages in a real browser: Chromium without a window, driven by Playwright.

a test --clicks--> page --HTTP--> a server in a thread --> the app --> Redis
"""

from collections import Counter
from contextlib import ExitStack
from importlib.util import find_spec

import pytest

from celery_delayq.contrib.web import wsgi
from tests.app.conftest import delayq, delayq_app, redis, redis_client, url
from tests.browser import support
from tests.web.conftest import app, die, many, scheduled, short_steps, unhurried

__all__ = ["app", "delayq", "delayq_app", "die", "many", "redis", "redis_client", "scheduled"]
__all__ += ["short_steps", "unhurried", "url"]

if find_spec("playwright") is None:  # it has no wheel for this machine
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(scope="package")
def chromium():
    """One process of the suite starts it, once.

    It ends before tests of other folders: Playwright's event loop runs until then.
    """
    with support.browser() as started:
        yield started


@pytest.fixture
def serve():
    """Serve an application of WSGI on a free port; return its address."""
    with ExitStack() as stack:
        yield lambda application: stack.enter_context(support.served(application))


@pytest.fixture
def site(app, serve):
    """The address of pages on which everything is allowed."""
    return serve(wsgi(app.delayq, allow=lambda _: "write", user=lambda _: "alice"))


@pytest.fixture
def look(chromium):
    """Open a page of a site: ``look(site, "/tasks", javascript=False, width=360, dark=True)``.

    A script's error, and anything that the pages' own policy forbids, fails the test, unless it
    has a text that *allows* names.
    """
    pages, wrong = [], Counter()

    def look(address, path="/", *, javascript=True, allows=(), **options):
        page = support.page_of(chromium, address, java_script_enabled=javascript, **options)
        pages.append(page)

        def note(text):
            if not any(part in text for part in allows):
                wrong[text] += 1

        page.on("pageerror", lambda error: note(str(error)))
        page.on("console", lambda said: note(said.text) if said.type == "error" else None)
        page.goto(path)
        return page

    yield look
    for page in pages:
        page.context.close()
    assert not wrong
