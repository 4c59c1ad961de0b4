"""The base of the columns of Celery's own ``countdown``; they differ in their broker."""

import os
from datetime import datetime

from celery import Celery

from tests.lab.comparison.jobs import note
from tests.lab.comparison.ways.way import Role, Way


def timeout_options() -> dict[str, object]:
    """The visibility time-out that a probe asks for; Celery's defaults otherwise.

    By default kombu looks every 100 s for messages held for an hour. That is too rare for so short
    a time-out.
    """
    seconds = os.environ.get("COMPARISON_TIMEOUT")
    if not seconds:
        return {}
    often = {"unacked_restore_interval": 1, "unacked_restore_throttle": 1}
    return {"broker_transport_options": {"visibility_timeout": float(seconds), **often}}


def make_app(broker: str, **conf: object) -> Celery:
    app = Celery("compare", broker=broker, set_as_current=False)
    app.conf.update(broker_connection_retry_on_startup=True, **conf)
    app.job = app.task(note, name="compare.job", shared=False)
    return app


def worker(module: str) -> Role:
    return Role(
        ("celery", "-A", module, "worker", "-l", "INFO", "-n", "wNUMBER@localhost"), r"\bready\.$"
    )


class CeleryEta(Way):
    """``apply_async(countdown=…)``; a worker holds jobs that are not yet due."""

    app: Celery

    def send(self, label):
        self.app.job.delay(label)

    def schedule(self, label, delay):
        return self.app.job.apply_async((label,), countdown=delay).id

    def cancel(self, job_id):
        # Workers that get it answer; no answer means that none got it.
        return bool(self.app.control.revoke(job_id, reply=True, timeout=1))

    def waiting(self):
        answers = self.app.control.inspect(timeout=1).scheduled() or {}
        return {
            one["request"]["id"]: datetime.fromisoformat(one["eta"]).timestamp()
            for held in answers.values()
            for one in held
        }

    def schedule_tagged(self, tag, label, delay):
        signature = self.app.job.s(label)
        signature.stamp(tag=tag)
        signature.apply_async(countdown=delay)

    def cancel_tag(self, tag):
        self.app.control.revoke_by_stamped_headers({"tag": [tag]}, reply=True, timeout=1)
