"""RQ: ``enqueue_in``, and workers that schedule."""

import os
from datetime import datetime, timedelta, timezone

from redis import Redis
from rq import Queue
from rq.exceptions import InvalidJobOperation, NoSuchJobError
from rq.job import Job
from rq.registry import ScheduledJobRegistry

from tests.lab.comparison.jobs import note
from tests.lab.comparison.ways.way import Role, Way

URL = os.environ["COMPARISON_REDIS"]


class Driver(Way):
    roles = {
        "worker": Role(
            ("rq.cli", "worker", "--with-scheduler", "--url", URL, "compare"), r"Listening on"
        )
    }

    def __init__(self):
        self._redis = Redis.from_url(URL)
        self._queue = Queue("compare", connection=self._redis)
        self._scheduled = ScheduledJobRegistry(queue=self._queue)

    def send(self, label):
        self._queue.enqueue(note, label)

    def schedule(self, label, delay):
        return self._queue.enqueue_in(timedelta(seconds=delay), note, label).id

    def cancel(self, job_id):
        try:
            Job.fetch(job_id, connection=self._redis).cancel()
        except (InvalidJobOperation, NoSuchJobError):
            return False
        return True

    def reschedule(self, job_id, delay):
        job = Job.fetch(job_id, connection=self._redis)
        self._scheduled.schedule(job, datetime.now(timezone.utc) + timedelta(seconds=delay))
        return job_id

    def waiting(self):
        ids = self._scheduled.get_job_ids()
        return {each: self._scheduled.get_scheduled_time(each).timestamp() for each in ids}

    def schedule_under_key(self, key, label, delay):
        self._queue.enqueue_in(timedelta(seconds=delay), note, label, job_id=key)
