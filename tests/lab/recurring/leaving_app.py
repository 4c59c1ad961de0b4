"""The app of the trial of leaving: with rules, with beat beside them, and without the package."""

import os
import time
from functools import cache

import redis
from celery import Celery
from celery.schedules import crontab

NOTES = "runs"  # the list in which each run notes itself
RULES, LEAVING, PLAIN = "rules", "leaving", "plain"
WAITING = 300  # tasks
SECONDS = {"five": 5, "seven": 7, "minute": 60}

stage = os.environ.get("LEAVING_STAGE", PLAIN)
app = Celery("leaving", broker=os.environ.get("LEAVING_BROKER", "memory://"), set_as_current=False)
app.conf.update(broker_connection_retry_on_startup=True, task_ignore_result=True)
app.conf.beat_schedule = {
    name: {"task": name, "schedule": crontab() if seconds == 60 else float(seconds)}
    for name, seconds in SECONDS.items()
}
if stage != PLAIN:
    from celery_delayq import DelayQ

    app.conf.update(delayq_url=os.environ["LEAVING_STORE"], delayq_beat=stage == RULES)
    DelayQ(app)


def _note(self) -> None:
    _notes().rpush(NOTES, f"{self.name} {time.time():.3f}")


tasks = {name: app.task(_note, name=name, shared=False, bind=True) for name in (*SECONDS, "once")}


@cache
def _notes() -> redis.Redis:
    return redis.Redis.from_url(os.environ["LEAVING_STORE"])


if __name__ == "__main__":
    for number in range(WAITING):  # one each second
        tasks["once"].apply_async(delayq_after=30 + number)
