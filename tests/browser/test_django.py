"""The pages in a Django project by clicking; tests/django has its permissions and its admin."""

import sys

import pytest

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
user = User.objects.create_user("writer", password="secret", is_staff=True)
user.user_permissions.set(Permission.objects.filter(codename__endswith="_scheduledtask"))
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


def test_a_user_logs_in_and_changes_a_task(app, redis, django, look, scheduled):
    scheduled("a")
    # The admin's own style sheets are not served here.
    page = look(django, "/ops/delayq/tasks", allows=["403", "404", "MIME type"])

    page.get_by_label("Username").fill("writer")
    page.get_by_label("Password").fill("secret")
    press(page, "Log in")
    page.wait_for_url(f"{django}/ops/delayq/tasks")
    page.get_by_role("link", name="shop.remind").click()
    press(page, "Cancel")

    says(page, "task a was cancelled")
    assert app.delayq.get("a") is None
