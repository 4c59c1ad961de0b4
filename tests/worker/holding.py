"""Tasks that end in all the ways that Celery knows."""

import os
import signal
import sys
from datetime import datetime, timedelta, timezone

from celery import chain, chord
from celery.exceptions import Ignore, Reject

from tests.worker import jobs


def lose(_task):
    os.kill(os.getpid(), signal.SIGKILL)


def fail(_task):
    raise KeyError("x")


def ignore(_task):
    raise Ignore


def reject(_task):
    raise Reject("no", requeue=False)


def requeue(_task):
    raise Reject("later", requeue=True)


def hang(_task):
    jobs.evidence().blpop("never", 600)


WAYS = {
    "succeed": lambda _: 1,
    "fail": fail,
    "ignore": ignore,
    "reject": reject,
    "requeue": requeue,
    "hang": hang,
    "lose": lose,
    "exit": lambda _: sys.exit(1),
}


def _parts(app):
    return [app.tasks["note"].si(), app.tasks["note"].si(), app.tasks["end"].si("succeed")]


def define(app, task):
    def run(self, how):
        """Say that it runs, wait for the test's word, and end."""
        jobs.record(app.delayq, self.request, hold=self.request.get("delayq_hold"))
        jobs.evidence().blpop(jobs.GATE.format(self.request.id), 60)
        return WAYS[how](self)

    again = {
        "retry": lambda one: one.retry(countdown=0.1),
        "retry at": lambda one: one.retry(eta=datetime.now(timezone.utc) + timedelta(seconds=0.1)),
        "defer": lambda one: one.defer(after=0.1),
        "replace": lambda one: one.replace(app.tasks["end"].si("succeed")),
        "chain": lambda one: one.replace(chain(_parts(app))),
        "chord": lambda one: one.replace(chord(_parts(app)[:2], _parts(app)[2])),
        "ends in a chord": lambda one: one.replace(
            chain(_parts(app)[0], chord(_parts(app)[:2], _parts(app)[2]))
        ),
        "requeue": lambda _: Reject("later", requeue=True),
    }

    @task("end", acks_late=False)
    def end(self, how):
        return run(self, how)

    @task("follow")
    def follow(self, key, how, own):
        """Schedules its successor under its own key, and its own id if so asked; then ends."""
        successor = app.tasks["end"].si("succeed").set(task_id=self.request.id if own else None)
        terms = {"unique_until": "finished", "conflict": "replace"}
        result = app.delayq.schedule(successor, after=0, key=key, **terms)
        jobs.record(app.delayq, self.request, successor=result.id)
        jobs.evidence().blpop(jobs.GATE.format(self.request.id), 60)
        return WAYS[how](self)

    @task("end_late", acks_late=True)
    def end_late(self, how):
        return run(self, how)

    @task("end_lost", acks_late=True, reject_on_worker_lost=True)
    def end_lost(self, how):
        if jobs.evidence().llen(jobs.RUNS.format(self.request.id)):
            how = "succeed"
        return run(self, how)

    @task("end_lost_and_retried", retry_on_worker_lost=True, default_retry_delay=0.1)
    def end_lost_and_retried(self, how):
        return run(self, "succeed" if self.request.retries else how)

    @task("end_quietly")
    def end_quietly(self, how):
        """Sends its retry, which is far, and goes on."""
        self.retry(countdown=600, throw=False)
        return run(self, how)

    @task("end_limited")
    def end_limited(self, how, limit="time_limit"):
        """Goes on when the test says so, in a run that its time limit ends."""
        if not self.request.retries:
            run(self, "succeed")
            raise self.retry(countdown=0, **{limit: 1})
        return WAYS[how](self)

    @task("go_on", acks_late=True, max_retries=None)
    def go_on(self, how):
        """Goes on once by *how*, and then ends."""
        number = jobs.evidence().llen(jobs.RUNS.format(self.request.id))
        if number:
            return run(self, "succeed")
        jobs.record(app.delayq, self.request, hold=self.request.get("delayq_hold"))
        raise again[how](self)

    def go_on_when_told(self, how):
        number = jobs.evidence().llen(jobs.RUNS.format(self.request.id))
        run(self, "succeed")
        if not number:
            raise again[how](self)

    @task("go_on_early", max_retries=None)
    def go_on_early(self, how):
        return go_on_when_told(self, how)

    @task("go_on_late", acks_late=True, max_retries=None)
    def go_on_late(self, how):
        return go_on_when_told(self, how)
