"""In a Django project Celery's fixup gives tasks its own base; ours works together with it."""

import json
import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.libraries

SETTINGS = """
USE_TZ = True
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
"""

# Apps of several kinds in one process, because starting Django takes long.
PROJECT = """
import json
import os

from celery import Celery
from celery_delayq import DelayQ, DelayQTask


def look(**options):
    app = Celery("shop", broker="memory://", set_as_current=False, **options)
    app.conf.update(task_always_eager=True, delayq_url="redis://127.0.0.1:1")
    DelayQ(app)
    ran = []

    @app.task(name="note")
    def note(number):
        ran.append(number)

    note.delay_until("2100-01-01", 1)
    return {
        "bases": [base.__name__ for base in app.Task.__mro__],
        "ran": ran,
        "on commit": on_commit(note, ran) if hasattr(note, "delay_on_commit") else None,
    }


def on_commit(note, ran):
    if not os.environ["DJANGO_SETTINGS_MODULE"]:
        return "there"

    from django.db import transaction

    with transaction.atomic():
        note.delay_on_commit(2)
        before = list(ran)
    return [before, ran]


class Own(DelayQTask):
    pass


print(json.dumps({
    "no class": look(),
    "class": look(task_cls=DelayQTask),
    "name": look(task_cls="celery_delayq:DelayQTask"),
    "with Django": look(task_cls="celery_delayq.contrib.django:DelayQDjangoTask"),
    "own class": look(task_cls=Own),
    "no fixup": look(task_cls=DelayQTask, fixups=[]),
}))
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Run the project, with Django's settings in the environment or without."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "shop_settings.py").write_text(SETTINGS)

    def run(**env):
        ran = subprocess.run(
            [sys.executable, "-c", PROJECT],
            cwd=folder,
            env={**os.environ, **env},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr
        return json.loads(ran.stdout)

    return run


@pytest.fixture(scope="module")
def project(run):
    return run(DJANGO_SETTINGS_MODULE="shop_settings")


@pytest.mark.parametrize("how", ["no class", "class", "name", "with Django"])
def test_tasks_have_the_methods_of_both(project, how):
    assert project[how]["on commit"] == [[1], [1, 2]]


@pytest.mark.parametrize("how", ["class", "name", "with Django"])
def test_the_base_that_goes_with_django_is_under_them(project, how):
    assert {"DelayQDjangoTask", "DelayQTask", "DjangoTask"} <= set(project[how]["bases"])


def test_an_app_that_names_no_class_keeps_the_one_of_celery_s_fixup(project):
    assert "DjangoTask" in project["no class"]["bases"]
    assert "DelayQTask" not in project["no class"]["bases"]


@pytest.mark.parametrize("how", ["own class", "no fixup"])
def test_a_class_of_the_user_s_own_stays_as_it_is_and_so_does_one_without_the_fixup(project, how):
    assert project[how]["on commit"] is None
    assert project[how]["ran"] == [1]


def test_outside_of_a_project_it_is_not_there_unless_it_was_named(run):
    found = run(DJANGO_SETTINGS_MODULE="")

    assert found["class"]["on commit"] is None
    assert "DjangoTask" not in found["class"]["bases"]
    assert found["with Django"]["on commit"] == "there"
