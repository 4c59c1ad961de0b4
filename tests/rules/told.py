"""The app of `celery -A tests.rules.told`: it writes down where its signals' receivers run."""

import json
import os
import sys
import threading

from celery.signals import before_task_publish, task_prerun, worker_shutdown

from tests.worker.jobs import evidence
from tests.worker.tasks import app

__all__ = ["app"]

PUBLISHED, RAN, IMPORTED = "published", "ran", "imported"


def noted(key, **facts):
    thread = threading.current_thread().name
    evidence().rpush(key, json.dumps({"pid": os.getpid(), "thread": thread, **facts}))


@before_task_publish.connect(weak=False)
def published(headers, **_):
    noted(PUBLISHED, id=headers["id"], task=headers["task"])


@task_prerun.connect(weak=False)
def ran(task, **_):
    noted(RAN, task=task.name)


@worker_shutdown.connect(weak=False)
def ended(**_):
    noted(IMPORTED, names=[name for name in sys.modules if "rules" in name or "cronsim" in name])
