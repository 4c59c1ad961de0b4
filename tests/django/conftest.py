"""The project of the recipe, as files; each program in it runs in its own process."""

import json
import os
import subprocess
import sys
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

    def started(self, script, *options, **env):
        """Run *script* in a process; return it when it has ended."""
        line, env = (*options, "-c", START + script), {**self.env, **env}
        if not options:
            return run_forked(*line, cwd=self.folder, env=env)
        return subprocess.run(
            [sys.executable, *line],
            cwd=self.folder,
            env={**os.environ, **env},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def run(self, script, **env):
        """Run *script*; return its last line."""
        ran = self.started(script, **env)
        assert ran.returncode == 0, ran.stderr
        return json.loads(ran.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def new_project(redis_server, tmp_path_factory):
    """Make a project from the recipe's files, with more lines in its settings."""

    def new(settings=""):
        folder = tmp_path_factory.mktemp("django")
        for block in page("guide/django").written_in("python"):
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
        migrated = project.started(
            "from django.core.management import call_command\n"
            "call_command('makemigrations', 'orders', verbosity=0)\n"
            "call_command('migrate', verbosity=0)\n"
        )
        assert migrated.returncode == 0, migrated.stderr
        return project

    return new
