"""The pages by their own command, and in other sites."""

import asyncio
import json
import os
import signal
import socket
import sys
from base64 import b64encode
from contextlib import ExitStack
from types import SimpleNamespace
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from flask import session
from itsdangerous import TimestampSigner

from tests.cli.conftest import project, run, sigint
from tests.readme.document import page
from tests.readme.runner import run as run_example
from tests.support.process import ChildProcess
from tests.web.conftest import OWN

__all__ = ["project", "run", "sigint"]


# The pages in other sites: Flask with its session, and ASGI by a2wsgi.


@pytest.fixture
def site_of(app, monkeypatch):
    """Run an example of the documentation, by its number; return its site."""
    monkeypatch.setitem(sys.modules, "shop", SimpleNamespace(delayq=app.delayq))

    def site_of(number):
        found = {"__name__": "example"}
        run_example(page("operate/page").written_in("python")[number], found)
        return found["site"]

    return site_of


@pytest.fixture
def site(site_of):
    """The Flask site of the documentation, with a login for each role."""
    made = site_of(0)

    @made.route("/login/<role>")
    def login(role):
        session.update(role=role, name=f"the {role}")
        return ""

    return made


@pytest.mark.parametrize(
    ("role", "statuses"),
    [(None, [403, 403]), ("guest", [403, 403]), ("support", [200, 403]), ("admin", [200, 303])],
)
def test_a_login_of_flask_says_who_may_do_what(site, scheduled, changed, role, statuses):
    scheduled("a")
    client = site.test_client()
    if role:
        client.get(f"/login/{role}")
    looked = client.get("/delayq/task?id=a")
    cancelled = client.post("/delayq/task?id=a", data={"action": "cancel"}, headers=OWN)
    assert [looked.status_code, cancelled.status_code] == statuses
    assert [one["user"] for one in changed] == (["the admin"] if role == "admin" else [])


def test_the_site_itself_stays(site):
    assert site.test_client().get("/nowhere").status_code == 404


SECRET = "a secret"


def cookie_of(values):
    """The cookie that Starlette's middleware makes of a session."""
    text = b64encode(json.dumps(values).encode())
    return b"session=" + TimestampSigner(SECRET).sign(text)


def asked_of(site, host, cookie):
    scope = {"type": "http", "http_version": "1.1", "method": "GET", "scheme": "http"}
    scope |= {"root_path": "", "path": "/delayq/tasks", "raw_path": b"/delayq/tasks"}
    scope |= {"query_string": b"queue=celery", "headers": [(b"host", host), (b"cookie", cookie)]}
    scope |= {"server": ("site.example", 80), "client": ("127.0.0.1", 1)}
    sent = []

    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message):
        sent.append(message)

    asyncio.run(site(scope, receive, send))

    return sent[0]["status"], b"".join(each.get("body", b"") for each in sent[1:])


@pytest.mark.parametrize(
    ("host", "its_session", "status"),
    [
        (b"shop.example", {"role": "support", "name": "ann"}, 200),
        (b"shop.example", {"role": "guest"}, 403),
        (b"shop.example", {}, 403),
        (b"evil.example", {"role": "support", "name": "ann"}, 421),
    ],
)
def test_the_asgi_site_of_the_docs_opens_it_by_its_own_session(
    site_of, scheduled, host, its_session, status
):
    scheduled("a")
    answered, body = asked_of(site_of(1), host, cookie_of(its_session))
    assert answered == status
    assert (b'href="/delayq/task?id=a&amp;back=queue%3Dcelery"' in body) is (status == 200)


# `celery delayq web`: a real process, on loopback, that answers to no foreign name.


PROJECT = """
import os
from celery import Celery
from celery_delayq import DelayQ

app = Celery("shop", broker=os.environ["REDIS"])
delayq = DelayQ(app)
"""


@pytest.fixture
def start(tmp_path, redis_url, sigint):
    """Start the command, and wait until it serves: ``start("--read-only")``."""
    started = []
    (tmp_path / "web_shop.py").write_text(PROJECT)

    def start(*options):  # returns the process and its URL
        command = ("-m", "celery", "-A", "web_shop", "delayq", "web", "--port", "0", *options)
        path = os.pathsep.join([str(tmp_path), *sys.path])
        process = ChildProcess(
            [sys.executable, "-u", *command],
            log=tmp_path / "web.log",
            env={"REDIS": redis_url, "PYTHONPATH": path},
        )
        started.append(process)
        [url] = process.wait_log("the page is on (http://localhost:[0-9]+)/; Ctrl-C").groups()
        return process, url

    yield start
    for process in started:
        process.kill()


def asked(url, **headers):
    try:
        with urlopen(Request(url, headers=headers), timeout=30) as answered:
            return answered.status, answered.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_the_web_command_serves_until_ctrl_c(start):
    process, url = start()
    status, text = asked(url)
    refused, _ = asked(url, Host="evil.example")
    status_at_end = process.stop(signal.SIGINT)
    assert (status, refused) == (200, 421)
    assert "Overview · shop</title>" in text
    assert status_at_end == 0
    assert "Traceback" not in process.tail()


def test_the_web_command_listens_on_loopback_only(start):
    _, url = start()
    port = int(url.rpartition(":")[2])
    with socket.socket() as other:
        # Another program can have the port on any other address.
        other.bind(("127.0.0.2", port))


def test_connections_that_ask_nothing_do_not_keep_others_out(start):
    _, url = start()
    address = ("127.0.0.1", int(url.rpartition(":")[2]))
    with ExitStack() as stack:
        for _ in range(150):  # waitress serves 100 at a time
            stack.enter_context(socket.create_connection(address))
        status, _ = asked(url)
    assert status == 200


def test_a_port_that_is_taken_is_said(run, app):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = run("web", "--port", str(port))
    assert result.exit_code == 1
    assert f"port {port} of 127.0.0.1: Address already in use" in result.output


def test_a_missing_package_is_said(run, app, monkeypatch):
    monkeypatch.setitem(sys.modules, "waitress", None)
    result = run("web")
    assert result.exit_code == 1
    assert "pip install 'celery_delayq[web]'" in result.output
