"""The project of the recipe, as files; each program in it runs in its own process."""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.readme.document import ROOT, page
from tests.support.forked import run_forked

# The last line that a script prints is the answer for its test.
START = """
import json
import django

django.setup()

from django.db import transaction
from shop.celery import app, delayq
from orders.models import Order
from orders.tasks import remind


"""


def error_of(call, *args, **kwargs):
    """Name and sentence of the call's error; nothing, if it raises none."""
    try:
        call(*args, **kwargs)
    except Exception as error:
        return [type(error).__name__, str(error)]
    return None


@dataclass
class Project:
    """A folder with a Django project, and the environment of its processes."""

    folder: Path
    env: dict[str, str]

    def started(self, script, **env):
        """Run *script* in a process; return it when it has ended."""
        return run_forked("-c", START + script, cwd=self.folder, env={**self.env, **env})

    def run(self, script, **env):
        """Run *script*; return its last line."""
        ran = self.started(script, **env)
        assert ran.returncode == 0, ran.stderr
        return json.loads(ran.stdout.splitlines()[-1])

    def migrate(self, *apps):
        """Make migrations of these apps, and apply all."""
        steps = [*(("makemigrations", app) for app in apps), ("migrate",)]
        calls = [f"call_command(*{step!r}, verbosity=0)\n" for step in steps]
        ran = self.started("from django.core.management import call_command\n" + "".join(calls))
        assert ran.returncode == 0, ran.stderr


@pytest.fixture(scope="module")
def new_project(redis_server, tmp_path_factory):
    """Make a project from the recipe's files, with more lines in its settings."""

    def new(settings=""):
        folder = tmp_path_factory.mktemp("django")
        for block in page("guide/django").written_in("python", "Django"):
            name = block.text.split()[1].rstrip(",")
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(block.text)
        (folder / "shop" / "__init__.py").write_text("from .celery import app\n")
        (folder / "orders" / "__init__.py").touch()
        with (folder / "shop" / "settings.py").open("a") as file:
            # A worker's working directory is another one, and a machine may be busy.
            file.write(f'DATABASES["default"]["NAME"] = "{folder}/db.sqlite3"\n')
            file.write(f"CELERY_DELAYQ_TIMEOUT = 30\n{settings}")
        env = {
            "CELERY_BROKER_URL": redis_server.url(),
            "DJANGO_SETTINGS_MODULE": "shop.settings",
            "PYTHONPATH": f"{folder}:{ROOT}",
        }
        redis_server.empty()
        project = Project(folder, env)
        project.migrate("orders")
        return project

    return new
