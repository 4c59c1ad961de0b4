"""huey: ``task.schedule(delay=…)``, with Redis."""

import os
from datetime import timezone

from huey import RedisHuey

from tests.lab.comparison.jobs import note
from tests.lab.comparison.ways.way import Role, Way

huey = RedisHuey("compare", url=os.environ["COMPARISON_REDIS"])
job = huey.task(name="job")(note)


class Driver(Way):
    roles = {
        "worker": Role(("huey.bin.huey_consumer", f"{__name__}.huey"), r"Huey consumer started")
    }

    def __init__(self):
        self._results = {}

    def send(self, label):
        job(label)

    def schedule(self, label, delay):
        return self._kept(job.schedule((label,), delay=delay))

    def cancel(self, job_id):
        return huey.revoke_by_id(job_id, revoke_once=True)

    def reschedule(self, job_id, delay):
        return self._kept(self._results[job_id].reschedule(delay=delay))

    def waiting(self):
        # Until a worker has looked at it, a task is in the queue; then in the schedule.
        tasks = (*huey.pending(), *huey.scheduled())
        return {one.id: one.eta.replace(tzinfo=timezone.utc).timestamp() for one in tasks}

    def _kept(self, result):
        self._results[result.id] = result
        return result.id
