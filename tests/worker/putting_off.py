"""Tasks that put themselves off, and the handlers that Celery calls for each of their runs."""

import os
import signal

from celery import Task, signals

from tests.worker import jobs

TOLD = "told:{}"
LONG = 3600


def tell(task_id, what):
    if jobs.EVIDENCE in os.environ:  # in a worker
        jobs.evidence().rpush(TOLD.format(task_id), what)


class Telling(Task):
    """Writes down the calls of its handlers."""

    def on_failure(self, _exc, task_id, *_):
        tell(task_id, "on_failure")

    def on_retry(self, _exc, task_id, *_):
        tell(task_id, "on_retry")

    def on_success(self, _value, task_id, *_):
        tell(task_id, "on_success")


@signals.task_failure.connect
def _failed(task_id, **_):
    tell(task_id, "task_failure")


@signals.task_retry.connect
def _retried(request, **_):
    tell(request.id, "task_retry")


@signals.task_postrun.connect
def _ended(task_id, state, kwargs, **_):
    if kwargs and kwargs.get("die") and state == "IGNORED":
        os.kill(os.getpid(), signal.SIGKILL)  # its work is stored, but not acknowledged


def define(app, task):
    def once_later(self, delay=0.1, **facts):
        """Put off the first run; the second one is the last."""
        seen = self.request
        number = jobs.record(app.delayq, seen, args=seen.args, parent=seen.parent_id, **facts)
        if number == 1:
            raise self.defer(after=delay)
        return number

    @task("later", ignore_result=False, base=Telling)
    def later(self, delay=0.1, **_):
        return once_later(
            self,
            delay,
            headers={name: self.request.get(name) for name in ("tenant", "argsrepr")},
            expires=self.request.expires,
            limits=self.request.timelimit,
        )

    @task("later_acked_late", ignore_result=False, acks_late=True, base=Telling)
    def later_acked_late(self, delay=0.1, **_):
        return once_later(self, delay)

    @task("later_tracked", ignore_result=False, track_started=True)
    def later_tracked(self, delay=0.1):
        return once_later(self, delay)

    @task("later_reporting", ignore_result=False)
    def later_reporting(self, delay=0.1):
        self.update_state(state="PROGRESS", meta={"done": 1})
        return once_later(self, delay)

    @task("later_hungry", autoretry_for=(Exception,), max_retries=3, default_retry_delay=0.3)
    def later_hungry(self, delay=0.1):
        return once_later(self, delay)

    @task("later_held", acks_late=True, ignore_result=False)
    def later_held(self, delay=0.1):
        # It belongs to a leaf: the core's tests define these tasks too, and run without it.
        from celery_delayq import Defer

        if jobs.record(app.delayq, self.request) == 1:
            jobs.evidence().blpop(jobs.GATE.format(self.request.id), 60)
            raise Defer(after=delay)

    @task("later_giving_up", ignore_result=False, max_retries=3)
    def later_giving_up(self):
        if self.put_offs == 1 and self.request.retries == 0:
            raise self.retry(countdown=0.1)
        if self.put_offs < 3:
            raise self.defer(after=0.1)
        return [self.put_offs, self.request.retries]

    @task("later_retried", ignore_result=False, max_retries=3)
    def later_retried(self):
        number = jobs.record(app.delayq, self.request)
        if number == 1:
            raise self.retry(countdown=0.1)
        if number == 2:
            raise self.defer(after=LONG)
        return self.request.retries
