"""A Django project with rules, or with beat: each publish and each run writes a row by the ORM."""

import os
from datetime import timedelta
from pathlib import Path

import django
from celery import Celery
from celery.signals import before_task_publish, worker_init

RULES, BEAT = WAYS = ("rules", "beat")
PUBLISHED, RAN = "published", "ran"
NAMES = [f"r{number}" for number in range(6)]
SECOND = timedelta(seconds=1)

way = os.environ.get("RECURRING_WAY", RULES)


def _database(name: str) -> dict[str, object]:
    engine = os.environ.get("RECURRING_ENGINE", "sqlite3")
    is_file = engine == "sqlite3"
    return {
        "ENGINE": f"django.db.backends.{engine}",
        "NAME": Path(os.environ.get("RECURRING_FOLDER", "")) / name if is_file else name,
        "OPTIONS": {"timeout": 60} if is_file else {},  # seconds
        "CONN_MAX_AGE": 60,
    }


# What Django reads of this module, as its settings.
DATABASES = {"default": _database(way), **{each: _database(each) for each in WAYS}}
USE_TZ = True

os.environ["DJANGO_SETTINGS_MODULE"] = __name__
django.setup()

from django.db import connections, models  # noqa: E402 - it wants the settings


class Row(models.Model):
    """That a task was published, or that it ran."""

    what = models.TextField()
    task_id = models.TextField()
    pid = models.IntegerField()

    class Meta:
        app_label = "recurring"


def make_table(name: str) -> None:
    with connections[name].schema_editor() as editor:
        editor.create_model(Row)


app = Celery("django", broker=os.environ.get("RECURRING_BROKER", "memory://"), set_as_current=False)
app.conf.update(
    broker_connection_retry_on_startup=True,
    task_ignore_result=True,
    worker_max_tasks_per_child=1,
    delayq_history=10_000,
)


def _ran(self) -> None:
    Row.objects.create(what=RAN, task_id=self.request.id, pid=os.getpid())


tasks = {name: app.task(_ran, name=name, shared=False, bind=True) for name in NAMES}


@before_task_publish.connect
def published(headers, **_) -> None:
    Row.objects.create(what=PUBLISHED, task_id=headers["id"], pid=os.getpid())


if way == RULES:
    from celery_delayq import DelayQ

    delayq = DelayQ(app)

    @worker_init.connect
    def say_rules(**_) -> None:
        for name, task in tasks.items():
            delayq.every(name, task.s(), SECOND)

else:
    app.conf.beat_schedule = {name: {"task": name, "schedule": SECOND} for name in NAMES}
