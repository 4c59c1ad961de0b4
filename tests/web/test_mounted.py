"""The pages in other sites: Flask with its session, and ASGI by a2wsgi."""

import asyncio
import json
import sys
from base64 import b64encode
from types import SimpleNamespace

import pytest
from flask import session
from itsdangerous import TimestampSigner

from tests.readme.document import page
from tests.readme.runner import run
from tests.web.conftest import OWN


@pytest.fixture
def site_of(app, monkeypatch):
    """Run an example of the documentation, by its number; return its site."""
    monkeypatch.setitem(sys.modules, "shop", SimpleNamespace(delayq=app.delayq))

    def site_of(number):
        found = {"__name__": "example"}
        run(page("operate/page").written_in("python")[number], found)
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
