"""The pages in other sites: Flask with its session, and ASGI by a2wsgi."""

import asyncio

import pytest
from a2wsgi import WSGIMiddleware
from flask import session

from celery_delayq.contrib.web import wsgi
from tests.readme.document import page
from tests.readme.runner import run
from tests.web.conftest import OWN


@pytest.fixture
def site(app, monkeypatch):
    """The Flask site of the documentation, with a login for each role."""
    import sys
    from types import SimpleNamespace

    monkeypatch.setitem(sys.modules, "shop", SimpleNamespace(delayq=app.delayq))
    [block, _] = page("operate/web").written_in("python")
    found = {"__name__": "example"}
    run(block, found)
    made = found["site"]

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


def test_it_can_be_mounted_in_an_asgi_site(app, scheduled):
    scheduled("a")
    mounted = WSGIMiddleware(wsgi(app.delayq, allow=lambda _: "read"))
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "root_path": "/ops",
        "path": "/ops/tasks",
        "query_string": b"queue=celery",
        "headers": [(b"host", b"site.example")],
        "server": ("site.example", 80),
        "client": ("127.0.0.1", 1),
    }
    sent = []

    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message):
        sent.append(message)

    asyncio.run(mounted(scope, receive, send))

    assert sent[0]["status"] == 200
    body = b"".join(one.get("body", b"") for one in sent[1:])
    assert b'href="/ops/task?id=a&amp;back=queue%3Dcelery"' in body
