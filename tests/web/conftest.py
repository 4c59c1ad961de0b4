"""The pages over an app of the test's own, asked by Werkzeug's client; no server runs."""

import html
import re
from itertools import count
from urllib.parse import unquote_plus

import pytest
from werkzeug.test import Client

from celery_delayq.contrib.web import page_changed, wsgi
from celery_delayq.core import clock
from tests.app.conftest import alive, delayq, delayq_app, redis, redis_client, url
from tests.app.support import FAR, LONG_AGO, redis_ms
from tests.support.network import AWAY
from tests.support.places import take
from tests.support.waiting import PATIENCE, eventually

__all__ = ["alive", "delayq", "delayq_app", "redis", "redis_client", "url"]

OWN = {"Sec-Fetch-Site": "same-origin"}
IDS = [f"task-{number:02}" for number in range(10)]


@pytest.fixture(autouse=True)
def unhurried(limits):
    """Let no step be cut because a busy machine takes a second for it."""
    limits(web_bulk_s=PATIENCE, web_list_s=PATIENCE, web_others_s=PATIENCE)


@pytest.fixture
def app(delayq_app, url):
    app = delayq_app(url, delayq_history=100)

    @app.task(name="shop.remind")
    def remind(order, text=""):
        pass

    return app


class Page:
    """A response, as a test reads it."""

    def __init__(self, response):
        self.status, self.headers = response.status_code, response.headers
        self.html = response.get_data(as_text=True)
        self.location = response.headers.get("Location")

    @property
    def text(self):
        """The text that a reader sees, with single spaces; texts of links and cells are apart."""
        body = self.html.partition("<body>")[2] or self.html
        return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", body)).split())

    @property
    def title(self):
        return html.unescape(re.search(r"<title>(.*?)</title>", self.html)[1])

    @property
    def said(self):
        """The answer to a change, or the sentence of an error."""
        pattern = r'role="(?:status|alert)"[^>]*>\s*(?:<(?:p|h2)>)?(.*?)</(?:p|h2)>'
        found = re.search(pattern, self.html, re.DOTALL)
        return found and " ".join(html.unescape(re.sub(r"<[^>]*>", "", found[1])).split())

    def url(self, pattern):
        """The URL that this pattern finds, or nothing."""
        found = re.search(pattern, self.html)
        return found and html.unescape(found[1])

    @property
    def further(self):
        """The URL of the next step, to which the script goes on by itself."""
        return self.url(r'href="([^"]*)" data-follow')

    @property
    def ids(self):
        """The ids of the tasks to which the rows of a list lead, in its order."""
        rows = re.findall(r"<tr>.*?</tr>", self.html, re.DOTALL)
        found = re.findall(r'href="[^"]*/task\?id=([^"&]*)', " ".join(rows))
        return [unquote_plus(each) for each in found]

    def action_with(self, text):
        """The URL to which the form posts that has this text."""
        forms = re.findall(r"<form[^>]*>.*?</form>", self.html, re.DOTALL)
        [form] = [one for one in forms if text in one]
        return html.unescape(re.search(r'action="([^"]*)"', form)[1])


class Browser:
    """Asks for pages, and sends forms as a browser does from these pages.

    Args:
        application: The pages.
        path: Where they are mounted.
    """

    def __init__(self, application, path=""):
        self._client, self._path = Client(application), path

    def ask(self, method, path):
        return self._client.open(path, method=method, headers=OWN, base_url=self._base)

    def get(self, path="/", headers=(), **query):
        answered = self._client.get(
            path, query_string=query or None, headers=dict(headers), base_url=self._base
        )
        return Page(answered)

    def post(self, path, headers=(), **form):
        headers = {**OWN, **dict(headers)}
        headers = {name: value for name, value in headers.items() if value is not None}
        return Page(self._client.post(path, data=form, headers=headers, base_url=self._base))

    def change(self, path, **form):
        """Send a form, and follow to the page that has the answer."""
        answered = self.post(path, **form)
        assert answered.status != 200, "the result of a form; a reload would send it again"
        return self.get(answered.location) if answered.location else answered

    @property
    def _base(self):
        return f"http://localhost{self._path}"


@pytest.fixture
def browse():
    """Make a browser of an app's pages: ``browse(app, allow=lambda _: "read")``."""

    def browse(app, path="", **options):
        options.setdefault("allow", lambda _: "write")
        options.setdefault("user", lambda _: "alice")
        return Browser(wsgi(app.delayq, **options), path)

    return browse


@pytest.fixture
def browser(app, browse):
    """A browser whose user may change tasks."""
    return browse(app)


@pytest.fixture
def changed(app):
    """The signals of changes on the page, without the sender."""
    told = []

    def receiver(sender, signal, **facts):
        assert sender is app
        told.append(facts)

    page_changed.connect(receiver, weak=False)
    yield told
    page_changed.receivers.clear()


@pytest.fixture
def scheduled(app):
    """Schedule a task, and read it: ``scheduled("a", 1, at=FAR, tags=["x"])``."""

    def scheduled(task_id, *args, at=FAR, queue=None, **options):
        signature = app.tasks["shop.remind"].s(*(args or (1,))).set(task_id=task_id)
        if queue:
            signature.set(queue=queue)
        app.delayq.schedule(signature, at=at, **options)
        return app.delayq.get(task_id)

    return scheduled


@pytest.fixture
def task(scheduled):
    """A task whose id is a."""
    return scheduled("a")


@pytest.fixture
def many(app, redis):
    """Ten tasks: even ones for the queue mail, with a tag."""
    for number, task_id in enumerate(IDS):
        even = {"queue": "mail", "delayq_tags": ["even"]} if number % 2 == 0 else {}
        app.send_task("shop.remind", (1,), task_id=task_id, delayq_at=FAR + number, **even)
    scheduled_ms = redis_ms(redis)
    eventually(lambda: redis_ms(redis) > scheduled_ms + 1)


@pytest.fixture
def short_steps(monkeypatch, limits):
    """Let each step of a change end after its first few tasks: on a clock that stands."""
    limits(web_bulk_s=0, selection_chunk=2, release_step=2, selection_page=3)
    monkeypatch.setattr(clock, "monotonic", lambda: 1000.0)


@pytest.fixture
def die(app, redis):
    """Let tasks die, as no list has the name of their queue: ``die("a", "b")``."""

    def die(*ids):
        for task_id in ids:
            at = {"queue": "full", "delayq_at": LONG_AGO}
            app.send_task("shop.remind", (task_id,), task_id=task_id, **at)
        redis.set("full", "not a list")
        take(app.delayq, "dead", *ids)

    return die


@pytest.fixture
def go_away(between):
    """Let Redis be away for one call of a script: ``go_away("cancel", at=2)``."""

    def go_away(script, at=1):
        calls = count(1)
        between.before(script, lambda: AWAY if next(calls) == at else None)

    return go_away
