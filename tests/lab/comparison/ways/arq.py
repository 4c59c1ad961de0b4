"""arq: ``_defer_by``, with ``allow_abort_jobs``, without which nothing can be cancelled."""

import asyncio
import os
import time

from arq import create_pool
from arq.connections import RedisSettings
from arq.jobs import Job

from tests.lab.comparison.jobs import note
from tests.lab.comparison.ways.way import Role, Way

SETTINGS = RedisSettings.from_dsn(os.environ["COMPARISON_REDIS"])
ANSWER_TIMEOUT = 3


async def job(_context, label):
    note(label)


class WorkerSettings:
    functions = (job,)
    redis_settings = SETTINGS
    allow_abort_jobs = True


class Driver(Way):
    roles = {"worker": Role(("arq", f"{__name__}.WorkerSettings"), r"Starting worker for")}

    def __init__(self):
        self._loop = asyncio.new_event_loop()
        self._pool = self._run(create_pool(SETTINGS))

    def _run(self, awaitable):
        return self._loop.run_until_complete(awaitable)

    def send(self, label):
        self._run(self._pool.enqueue_job("job", label))

    def schedule(self, label, delay):
        return self._run(self._pool.enqueue_job("job", label, _defer_by=delay)).job_id

    def one_by_one(self, count, delay):
        return self._run(self._one_by_one(count, delay))

    async def _one_by_one(self, count, delay):
        started = time.perf_counter()
        for number in range(count):
            await self._pool.enqueue_job("job", f"one-{number}", _defer_by=delay)
        return time.perf_counter() - started

    def cancel(self, job_id):
        try:
            return self._run(Job(job_id, self._pool).abort(timeout=ANSWER_TIMEOUT))
        except asyncio.TimeoutError:
            return None

    def waiting(self):
        return {one.job_id: one.score / 1000 for one in self._run(self._pool.queued_jobs())}

    def schedule_under_key(self, key, label, delay):
        self._run(self._pool.enqueue_job("job", label, _job_id=key, _defer_by=delay))
