"""In the worker: notes each run of a task, with times by Redis's clock, for the show to read.

The show's worker imports it; the scenes do not use it.
"""

import json
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta, timezone

from celery.signals import task_postrun, task_prerun
from scenes.app import app, delayq

# A busy machine may let Redis wait for its processor.
app.conf.delayq_timeout = 30

NOTES = "runs"  # a list in the result backend's Redis

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True)
class Run:
    """One run of a task; times in seconds, Unix time."""

    task: str
    id: str
    began: float
    ended: float
    due: float | None
    retries: int
    state: str  # Celery's: SUCCESS; IGNORED if it put itself off
    answer: str


def runs(first=0):
    """Return the worker's notes, without the *first* ones."""
    return [Run(**json.loads(note)) for note in app.backend.client.lrange(NOTES, first, -1)]


def redis_now():
    seconds, microseconds = app.backend.client.time()
    return EPOCH + timedelta(seconds=seconds, microseconds=microseconds)


@task_prerun.connect
def begins(task, **_):
    task.request.witnessed = redis_now()


@task_postrun.connect
def ends(task, task_id, retval, state, **_):
    request, due = task.request, delayq.due_of(task.request)
    run = Run(
        task.name,
        task_id,
        request.witnessed.timestamp(),
        redis_now().timestamp(),
        due and due.timestamp(),
        request.retries,
        state,
        str(retval),
    )
    app.backend.client.rpush(NOTES, json.dumps(asdict(run)))
