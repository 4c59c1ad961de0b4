"""RQ: ``enqueue_at``, and its scheduler process."""

import sys
from datetime import datetime

from redis import Redis
from rq import Queue
from rq.scheduler import RQScheduler

from tests.lab.benchmarks.peers.driver import run


class RQ:
    """Its scheduler looks once a second, and works in whole seconds. The queue holds ids only."""

    queue = "rq:queue:benchmark"

    def __init__(self, url: str):
        self._redis = Redis.from_url(url)
        self._queue = Queue("benchmark", connection=self._redis)

    def schedule(self, due: datetime, label: str) -> None:
        self._queue.enqueue_at(due, "tests.lab.benchmarks.peers.rq.noop", 1, 2, job_id=label)

    hold = schedule

    def move(self) -> None:
        scheduler = RQScheduler([self._queue], self._redis, interval=1, logging_level="ERROR")
        scheduler.acquire_locks()
        scheduler.work()


def noop(x: int, y: int) -> None:
    pass


if __name__ == "__main__":
    run(RQ(sys.argv[1]))
