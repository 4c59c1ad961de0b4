"""One app for each way of letting a task recur; RECURRING_WAY says which. All of them run alike."""

import os
import time
from datetime import timedelta
from functools import cache

import redis
from celery import Celery
from celery.schedules import crontab
from celery.signals import worker_init

NOTES = "runs"  # the list in which each run notes itself
FIVE = timedelta(seconds=5)
DELAYQ, BEAT = "celery_delayq", "celery beat"
REDBEAT, TUNED = "celery-redbeat", "celery-redbeat, tuned"
SCHEDULES = {"minute": crontab(), "five": FIVE}

way = os.environ.get("RECURRING_WAY", BEAT)
url = os.environ.get("RECURRING_BROKER", "memory://")
app = Celery("beside", broker=url, set_as_current=False)
app.conf.update(broker_connection_retry_on_startup=True, task_ignore_result=True)


def _note(self) -> None:
    # The time by this machine's clock; and, if the message says it, the slot.
    due = (self.request.headers or {}).get("delayq_due") or ""
    _notes().rpush(NOTES, f"{self.name} {time.time():.3f} {due}")


tasks = {name: app.task(_note, name=name, shared=False, bind=True) for name in SCHEDULES}

if way == DELAYQ:
    from celery_delayq import DelayQ

    delayq = DelayQ(app)

    @worker_init.connect
    def say_rules(**_: object) -> None:
        for name, task in tasks.items():
            delayq.every(name, task.s(), SCHEDULES[name])

else:
    app.conf.beat_schedule = {
        name: {"task": name, "schedule": each} for name, each in SCHEDULES.items()
    }
    if way in (REDBEAT, TUNED):
        app.conf.redbeat_redis_url = url
    if way == TUNED:
        # "redbeat_lock_timeout: defaults to five times of the default scheduler's loop interval".
        app.conf.beat_max_loop_interval = 5


@cache
def _notes() -> redis.Redis:
    return redis.Redis.from_url(url)
