"""The app of the trial of clocks: rules whose runs note themselves on a Redis of their own."""

import json
import os
import time
from functools import cache

import redis
from celery import Celery

NOTES = "runs"
# name -> what becomes of the slots at which no scanner was alive
MISSED = {"one": "one", "all": "all", "keyed": "one"}

app = Celery("clocks", set_as_current=False)
app.conf.update(json.loads(os.environ.get("RECURRING_CONF", "{}")))


def _note(self) -> None:
    due, mark = (self.request.headers.get(f"delayq_{name}") for name in ("due", "redelivered"))
    line = {"rule": self.name, "at": time.time(), "due": due, "id": self.request.id, "mark": mark}
    _notes().rpush(NOTES, json.dumps(line))


tasks = {name: app.task(_note, name=name, shared=False, bind=True) for name in MISSED}

if "delayq_url" in app.conf.changes:
    from celery_delayq import DelayQ

    delayq = DelayQ(app)


@cache
def _notes() -> redis.Redis:
    return redis.Redis.from_url(os.environ["RECURRING_NOTES"])
