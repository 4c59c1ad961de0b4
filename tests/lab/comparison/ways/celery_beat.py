"""django-celery-beat: a one-off periodic task with a clocked schedule; every call edits rows."""

import json
import os
from datetime import datetime, timedelta, timezone
from pathlib import Path

import django
from django.conf import settings

from tests.lab.comparison.ways.celery_eta import make_app, worker
from tests.lab.comparison.ways.way import Role, Way

settings.configure(
    INSTALLED_APPS=["django_celery_beat"],
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": Path(os.environ["COMPARISON_FOLDER"]) / "beat.sqlite3",
            # Several processes write.
            "OPTIONS": {
                "timeout": 20,
                "transaction_mode": "IMMEDIATE",
                "init_command": "PRAGMA journal_mode=WAL",
            },
        }
    },
    USE_TZ=True,
)
django.setup()

from django_celery_beat.models import ClockedSchedule, PeriodicTask, PeriodicTasks  # noqa: E402

app = make_app(os.environ["COMPARISON_REDIS"])
BEAT = ("celery", "-A", __name__, "beat", "-l", "INFO")


class Driver(Way):
    roles = {
        "worker": worker(__name__),
        "beat": Role(
            (*BEAT, "--scheduler", "django_celery_beat.schedulers:DatabaseScheduler"),
            r"beat: Starting",
        ),
    }

    def __init__(self):
        django.core.management.call_command("migrate", verbosity=0)

    def send(self, label):
        app.job.delay(label)

    def schedule(self, label, delay):
        return PeriodicTask.objects.create(**_row(label, _clocked(delay))).name

    def fill(self, count, delay):
        clocked = _clocked(delay)
        rows = [PeriodicTask(**_row(f"one-{number}", clocked)) for number in range(count)]
        PeriodicTask.objects.bulk_create(rows, batch_size=500)
        PeriodicTasks.update_changed()

    def cancel(self, job_id):
        # A task that was sent is disabled, and no longer counts as waiting.
        deleted = PeriodicTask.objects.filter(name=job_id, enabled=True).delete()[0]
        PeriodicTasks.update_changed()
        return deleted > 0

    def reschedule(self, job_id, delay):
        task = PeriodicTask.objects.get(name=job_id)
        task.clocked = _clocked(delay)
        task.save()
        return task.name

    def waiting(self):
        tasks = PeriodicTask.objects.filter(enabled=True).select_related("clocked")
        return {task.name: task.clocked.clocked_time.timestamp() for task in tasks}

    def schedule_under_key(self, key, label, delay):
        row = _row(label, _clocked(delay))
        PeriodicTask.objects.update_or_create(name=key, defaults={**row, "name": key})

    def schedule_tagged(self, tag, label, delay):
        PeriodicTask.objects.create(**{**_row(label, _clocked(delay)), "description": tag})

    def cancel_tag(self, tag):
        PeriodicTask.objects.filter(description=tag, enabled=True).delete()
        PeriodicTasks.update_changed()


def _clocked(delay):
    due = datetime.now(timezone.utc) + timedelta(seconds=delay)
    return ClockedSchedule.objects.create(clocked_time=due)


def _row(label, clocked):
    task = {"name": label, "task": "compare.job", "args": json.dumps([label])}
    return {**task, "clocked": clocked, "one_off": True}
