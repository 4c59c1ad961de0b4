"""This package, with the broker's own Redis as its store."""

import os

from celery import Celery

from celery_delayq import DelayQ
from tests.lab.comparison.jobs import note
from tests.lab.comparison.ways.celery_eta import timeout_options, worker
from tests.lab.comparison.ways.way import Way

app = Celery("compare", broker=os.environ["COMPARISON_REDIS"], set_as_current=False)
app.conf.update(broker_connection_retry_on_startup=True, **timeout_options())
delayq = DelayQ(app)
job = app.task(note, name="compare.job", shared=False)


class Driver(Way):
    roles = {"worker": worker(__name__)}

    def send(self, label):
        job.delay(label)

    def schedule(self, label, delay):
        return job.delay_for(delay, label).id

    def fill(self, count, delay):
        delayq.schedule_many(
            job, [((f"one-{number}",), {}) for number in range(count)], after=delay
        )

    def cancel(self, job_id):
        return bool(delayq.cancel(job_id))

    def reschedule(self, job_id, delay):
        assert delayq.reschedule(job_id, after=delay)
        return job_id

    def waiting(self):
        return {task.id: task.due.timestamp() for task in delayq.tasks()}

    def schedule_under_key(self, key, label, delay):
        delayq.schedule(job.s(label), after=delay, key=key, conflict="debounce")

    def schedule_tagged(self, tag, label, delay):
        delayq.schedule(job.s(label), after=delay, tags=[tag])

    def cancel_tag(self, tag):
        delayq.select(tag=tag).cancel()
