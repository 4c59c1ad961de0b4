"""The app of workers that are killed. Each of them says the rules when it starts."""

import json
import os
import time
from datetime import timedelta
from functools import cache

import redis
from celery import Celery
from celery.schedules import crontab
from celery.signals import worker_init

from celery_delayq import DelayQ

ARRIVALS = "arrivals"  # the queue that no worker reads: each delivered run stays in it
RUNS = "runs"  # the list in which runs of the keyed rule note themselves
KEY = "keyed"
UNIQUE_FOR = 6  # seconds: a killed worker frees no key
LASTS = (0.0, 0.3, 0.6, 4.0)  # seconds that the runs of the keyed rule take, in turn

# name -> seconds between two slots
INTERVALS = {"two": 2, "three": 3, "five": 5, "minute": 60, "keyed": 3}

app = Celery("recurring")
app.conf.update(json.loads(os.environ.get("RECURRING_CONF", "{}")))
delayq = DelayQ(app)


@app.task(name="keyed", bind=True, shared=False, ignore_result=True)
def keyed(self) -> None:
    """Note that it runs, and keep its key for a while."""
    due = self.request.headers["delayq_due"]
    is_marked = bool(self.request.headers.get("delayq_redelivered"))
    _notes().rpush(RUNS, json.dumps([self.request.id, is_marked]))
    time.sleep(LASTS[due // 1000 // INTERVALS[KEY] % len(LASTS)])  # noqa: TID251 - it is at work


def _never_run() -> None:
    pass


others = {name: app.task(_never_run, name=name, shared=False) for name in INTERVALS if name != KEY}


@worker_init.connect
def say_rules(**_: object) -> None:
    """Set all rules; a worker that says them again changes nothing."""
    for name, task in others.items():
        each = crontab() if name == "minute" else timedelta(seconds=INTERVALS[name])
        delayq.every(name, task.s().set(queue=ARRIVALS), each)
    held = keyed.s().set(
        delayq_key=KEY, delayq_unique_until="finished", delayq_unique_for=UNIQUE_FOR
    )
    delayq.every(KEY, held, timedelta(seconds=INTERVALS[KEY]), missed="all")


@cache
def _notes() -> redis.Redis:
    return redis.Redis.from_url(os.environ["RECURRING_NOTES"])
