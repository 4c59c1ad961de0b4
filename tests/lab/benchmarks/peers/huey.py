"""huey: ``task.schedule``, and the scheduler of its consumer."""

import sys
from datetime import datetime
from threading import Event

from huey import RedisHuey
from huey.consumer import Scheduler

from tests.lab.benchmarks.peers.driver import run


class Huey:
    """Scheduling pushes to the queue; a worker then puts early tasks into the schedule."""

    queue = "huey.redis.benchmark"

    def __init__(self, url: str):
        self._huey = RedisHuey("benchmark", url=url, utc=True, results=False)
        self._noop = self._huey.task(name="noop")(_noop)

    def schedule(self, due: datetime, label: str) -> None:
        self._noop.schedule((1, 2, label), eta=due)

    def hold(self, due: datetime, label: str) -> None:
        self._huey.add_schedule(self._noop.s(1, 2, label, eta=due))

    def move(self) -> None:
        scheduler = Scheduler(self._huey, Event(), interval=1, periodic=False)
        scheduler.initialize()
        while True:
            scheduler.loop()


def _noop(x: int, y: int, label: str) -> None:
    pass


if __name__ == "__main__":
    run(Huey(sys.argv[1]))
