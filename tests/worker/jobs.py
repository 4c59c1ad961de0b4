"""The tasks of these tests. Each run writes a line to Redis, and the tests read these lines."""

import functools
import json
import os

import redis

from tests.worker import holding, putting_off

RUNS = "runs:{}"
GATE = "gate:{}"
EVIDENCE = "DELAYQ_TEST_EVIDENCE"


def evidence():
    return _client(os.getpid())


@functools.cache
def _client(_pid):
    return redis.Redis.from_url(os.environ[EVIDENCE], socket_timeout=None)


def record(delayq, request, **facts):
    """Write down one run: its time by Redis's clock, and the task's data on its delivery.

    Returns the number of runs written down so far.
    """
    seconds, micros = evidence().time()
    due = delayq.due_of(request)
    line = {
        "at": seconds + micros / 1_000_000,
        "due": due and due.timestamp(),
        "queue": request.delivery_info["routing_key"],
        "priority": request.delivery_info["priority"],
        "eta": request.eta,
        "attempt": request.get("delayq_attempt"),
        "redelivered": request.get("delayq_redelivered"),
        "retries": request.retries,
        "pid": os.getpid(),
        **facts,
    }
    return evidence().rpush(RUNS.format(request.id), json.dumps(line))


def define(app):
    """Add the tasks to *app*, in the worker and in the test alike."""

    def task(name, **options):
        return app.task(name=name, bind=True, shared=False, **options)

    @task("note")
    def note(self, *args):
        record(app.delayq, self.request, args=args)
        return list(args)

    @task("add", ignore_result=False)
    def add(self, x, y):
        record(app.delayq, self.request)
        return x + y

    @task("double", ignore_result=False)
    def double(_self, x):
        return 2 * x

    @task("total", ignore_result=False)
    def total(self, numbers):
        record(app.delayq, self.request)
        return sum(numbers)

    @task("persist", max_retries=None)
    def persist(self, times, countdown):
        record(app.delayq, self.request)
        if self.request.retries < times:
            raise self.retry(countdown=countdown)
        return self.request.retries

    @task("insist", max_retries=None, ignore_result=False)
    def insist(self, key, conflict):
        record(app.delayq, self.request)
        if not self.request.retries:
            raise self.retry(countdown=0.1, delayq_key=key, delayq_conflict=conflict)
        return self.request.retries

    @task("stumble", autoretry_for=(KeyError,), default_retry_delay=0.3, max_retries=3)
    def stumble(self, times):
        record(app.delayq, self.request)
        if self.request.retries < times:
            raise KeyError(self.request.retries)
        return self.request.retries

    @task("again")
    def again(self, left, delay):
        record(app.delayq, self.request, left=left)
        if left:
            again.apply_async((left - 1, delay), task_id=self.request.id, delayq_after=delay)

    @task("spawn")
    def spawn(self, ids, delay):
        record(app.delayq, self.request)
        for task_id in ids:
            note.apply_async(task_id=task_id, delayq_after=delay)

    @task("share", ignore_result=False)
    def share(_self, key):
        return app.delayq.schedule(note.s(), after=3600, key=key, conflict="keep").id

    @task("hold", acks_late=True)
    def hold(self, seconds):
        record(app.delayq, self.request, after=False)
        evidence().blpop(GATE.format(self.request.id), seconds)
        record(app.delayq, self.request, after=True)

    putting_off.define(app, task)
    holding.define(app, task)
    return app.tasks
