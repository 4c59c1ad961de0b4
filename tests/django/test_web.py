"""The pages in a Django project: its login, its permissions, its admin."""

import pytest

SETTINGS = """
INSTALLED_APPS += [
    "celery_delayq.contrib.web.django",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
TEMPLATES = [{
    "BACKEND": "django.template.backends.django.DjangoTemplates",
    "APP_DIRS": True,
    "OPTIONS": {"context_processors": [
        "django.template.context_processors.request",
        "django.contrib.auth.context_processors.auth",
        "django.contrib.messages.context_processors.messages",
    ]},
}]
ROOT_URLCONF = "shop.urls"
ALLOWED_HOSTS = ["shop.example", "testserver"]
CSRF_TRUSTED_ORIGINS = ["https://admin.example"]
CELERY_DELAYQ_HISTORY = 10
"""
URLS = """
from django.contrib import admin
from django.urls import include, path

urlpatterns = [
    path("ops/delayq/", include("celery_delayq.contrib.web.django.urls")),
    path("admin/", admin.site.urls),
]
"""
# Each script has clients of these users; CSRF is checked as in production.
USERS = """
import json
from django.contrib.auth.models import Permission, User
from django.test import Client

OWN = {"sec-fetch-site": "same-origin"}
CHANGED = []

def client(name, *permissions):
    user, _ = User.objects.get_or_create(username=name, is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    made = Client(enforce_csrf_checks=True, SERVER_NAME="shop.example")
    made.force_login(user)
    return made

nobody = Client(SERVER_NAME="shop.example")
other = client("other")
reader = client("reader", "view_scheduledtask")
writer = client("writer", "view_scheduledtask", "change_scheduledtask")
for one in delayq.tasks():
    delayq.cancel(one)
remind.apply_async((41,), task_id="a", delayq_after=3600)
"""


@pytest.fixture(scope="module")
def site(new_project):
    project = new_project(SETTINGS)
    (project.folder / "shop" / "urls.py").write_text(URLS)
    project.migrate()
    return project


@pytest.fixture
def asked(site):
    """Run a script that has clients of these users."""
    return lambda script: site.run(USERS + script)


def test_permissions_decide_who_looks_and_who_changes(asked):
    told = asked("""
from celery_delayq.contrib.web import page_changed
page_changed.connect(lambda user, action, **_: CHANGED.append([user, action]), weak=False)
url = "/ops/delayq/task?id=a"
looks = [one.get(url).status_code for one in (other, reader, writer)]
forms = ["<form method=\\"post\\"" in one.get(url).content.decode() for one in (reader, writer)]
posts = [one.post(url, {"action": "cancel"}, headers=OWN).status_code for one in (other, reader)]
waits = delayq.get("a") is not None
done = writer.post(url, {"action": "cancel"}, headers=OWN)
print(json.dumps([looks, forms, posts, waits, done.status_code, delayq.get("a") is None, CHANGED]))
""")

    assert told == [
        [403, 200, 200], [False, True], [403, 403], True, 303, True, [["writer", "cancel"]],
    ]  # fmt: skip


def test_without_a_login_one_is_sent_to_it(asked):
    told = asked("""
answers = [nobody.get("/ops/delayq/tasks?queue=mail"), nobody.post("/ops/delayq/task?id=a")]
print(json.dumps([[one.status_code, one["Location"]] for one in answers]))
""")

    login = "/accounts/login/?next=/ops/delayq/"
    assert told == [
        [302, f"{login}tasks%3Fqueue%3Dmail"],
        [302, f"{login}task%3Fid%3Da"],
    ]


def test_a_form_from_elsewhere_changes_nothing_though_the_view_is_exempt_from_django_s_csrf(asked):
    told = asked("""
def post(**headers):
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    return writer.post("/ops/delayq/task?id=a", {"action": "run_now"}, headers=headers).status_code

refused = [post(), post(sec_fetch_site="cross-site"), post(origin="http://evil.example")]
done = [post(origin="http://shop.example"), post(origin="https://admin.example")]
host = writer.get("/ops/delayq/", headers={"host": "evil.example"}).status_code
print(json.dumps([refused, done, host]))
""")

    assert told == [[403, 403, 403], [303, 303], 400]


def test_the_urls_on_the_pages_have_the_path_and_the_headers_stay(asked):
    told = asked("""
page = writer.get("/ops/delayq/")
text = page.content.decode()
css = text.partition('rel="stylesheet" href="')[2].partition('"')[0]
print(json.dumps([
    'href="/ops/delayq/tasks"' in text, css.partition("?")[0], writer.get(css).status_code,
    page["X-Frame-Options"], page["Referrer-Policy"], "default-src 'none'" in page[
    "Content-Security-Policy"], page["Content-Type"],
]))
""")

    assert told == [
        True,
        "/ops/delayq/static/page.css",
        200,
        "DENY",
        "same-origin",
        True,
        "text/html; charset=utf-8",
    ]


def test_the_admin_leads_to_the_pages_those_who_may_look(asked):
    told = asked("""
link = "/admin/delayq/scheduledtask/"
shown = [link in one.get("/admin/").content.decode() for one in (other, reader, writer)]
led = writer.get(link)
deep = [writer.get(link + one).get("Location") for one in ("1/change/", "1/history/", "add/")]
closed = other.get(link, follow=True).status_code
print(json.dumps([shown, led.status_code, led["Location"], deep, closed]))
""")

    assert told == [[False, True, True], 302, "/ops/delayq/", ["/ops/delayq/"] * 3, 403]


def test_the_middleware_names_the_user_who_changes_a_task(asked):
    told = asked("""
import asyncio
from celery_delayq import signals
from celery_delayq.contrib.django import acting
signals.task_rescheduled.connect(lambda actor, **_: CHANGED.append(actor), weak=False)

class Request:
    def __init__(self, user=None):
        if user:
            self.user = user

def view(request):
    delayq.reschedule("a", by=60)

async def coroutine(request):
    delayq.reschedule("a", by=60)

from django.contrib.auth.models import AnonymousUser, User
ann = User(username="ann")
for user in (ann, AnonymousUser(), None):
    acting(view)(Request(user))
asyncio.run(acting(coroutine)(Request(ann)))
delayq.reschedule("a", by=60)
print(json.dumps(CHANGED))
""")

    assert told == ["ann", "", "", "ann", ""]


def test_the_pages_need_no_table_and_no_migration(site):
    told = site.run("""
import io, json
from django.core.management import call_command
from django.db import connection
out = io.StringIO()
call_command("makemigrations", "--check", "--dry-run", stdout=out)
call_command("check", stdout=out)
tables = [one for one in connection.introspection.table_names() if "delayq" in one]
print(json.dumps([tables, out.getvalue()]))
""")

    assert told == [[], "No changes detected\nSystem check identified no issues (0 silenced).\n"]


def test_the_pages_work_under_asgi(asked):
    told = asked("""
import asyncio
from django.test import AsyncClient

async def ask():
    made = AsyncClient()
    made.cookies = writer.cookies
    page = await made.get("/ops/delayq/tasks")
    done = await made.post("/ops/delayq/task?id=a", {"action": "cancel"}, headers=OWN)
    return [page.status_code, 'href="/ops/delayq/task?id=a"' in page.content.decode(),
            done.status_code]

print(json.dumps(asyncio.run(ask())))
""")

    assert told == [200, True, 303]
