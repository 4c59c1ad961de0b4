"""The pages in a Django project by clicking: its login, its permissions, its admin."""

import sys

import pytest
from playwright.sync_api import expect

from tests.browser.support import press, says
from tests.django.conftest import new_project
from tests.django.test_web import SETTINGS, URLS
from tests.support.process import ChildProcess

__all__ = ["new_project"]

LOGIN = """
ALLOWED_HOSTS = ["127.0.0.1"]
LOGIN_URL = "/admin/login/"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
STATIC_URL = "/static/"
"""
USERS = """
from django.core.management import call_command
from django.contrib.auth.models import Permission, User

call_command("migrate", verbosity=0)
MAY = {"other": [], "reader": ["view"], "writer": ["view", "change"]}
for name, may in MAY.items():
    user = User.objects.create_user(name, password="secret", is_staff=True)
    names = [f"{one}_scheduledtask" for one in may]
    user.user_permissions.set(Permission.objects.filter(codename__in=names))
print("{}")
"""
SERVE = """
from django.core.wsgi import get_wsgi_application
from werkzeug.serving import make_server

server = make_server("127.0.0.1", 0, get_wsgi_application(), threaded=True)
print("it listens on", server.port, flush=True)
server.serve_forever()
"""


@pytest.fixture(scope="module")
def django(new_project, tmp_path_factory):
    """The address of the project's site."""
    project = new_project(SETTINGS + LOGIN)
    (project.folder / "shop" / "urls.py").write_text(URLS)
    project.run(USERS)
    log = tmp_path_factory.mktemp("site") / "site.log"
    process = ChildProcess([sys.executable, "-c", SERVE], log=log, env=project.env)
    [port] = process.wait_log(r"it listens on (\d+)").groups()
    yield f"http://127.0.0.1:{port}"
    process.kill()


@pytest.fixture
def log_in(django, look):
    """Ask for a page without a login, and log in: ``log_in("writer")``."""

    def log_in(name, path):
        # The admin's own style sheets are not served here.
        page = look(django, path, allows=["403", "404", "MIME type"])
        page.get_by_label("Username").fill(name)
        page.get_by_label("Password").fill("secret")
        press(page, "Log in")
        page.wait_for_url(f"{django}{path}")
        return page

    return log_in


def test_a_user_who_may_change_tasks(app, redis, log_in, scheduled):
    scheduled("a")
    page = log_in("writer", "/ops/delayq/tasks")

    page.get_by_role("link", name="a", exact=True).click()
    press(page, "Cancel")

    says(page, "task a was cancelled")
    assert app.delayq.get("a") is None


def test_a_user_who_may_only_look(app, redis, log_in, scheduled):
    scheduled("a")
    page = log_in("reader", "/ops/delayq/tasks")

    assert page.get_by_role("checkbox").count() == 0
    page.get_by_role("link", name="a", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Task a")
    assert page.get_by_role("button").count() == 0
    page.goto("/ops/delayq/paused")
    assert page.get_by_role("button").count() == 0


def test_a_user_without_permissions(redis, log_in, scheduled):
    scheduled("a")
    page = log_in("other", "/ops/delayq/task?id=a")

    expect(page.get_by_role("alert")).to_have_text("these pages are closed to you")


def test_the_admin_leads_to_the_pages(redis, log_in):
    page = log_in("writer", "/admin/")

    page.get_by_role("link", name="Scheduled tasks").first.click()

    expect(page.get_by_role("heading", level=1)).to_have_text("Overview")
