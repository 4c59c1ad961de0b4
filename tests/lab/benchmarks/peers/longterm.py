"""celery-longterm-scheduler: ``apply_async(eta=...)``, and its command in a loop of one second."""

import sys
from datetime import datetime, timezone
from threading import Event

from celery import Celery
from celery_longterm_scheduler import Task, get_scheduler

from tests.lab.benchmarks.peers.driver import run


class Longterm:
    """Meant for cron, once a minute; a loop around it can run each second."""

    queue = "celery"

    def __init__(self, url: str):
        self._app = Celery("benchmark", broker=url, task_cls=Task)
        self._app.conf.longterm_scheduler_backend = url
        self._noop = self._app.task(_noop, name="bench.noop", shared=False)

    def schedule(self, due: datetime, label: str) -> None:
        # The label goes into argsrepr, which the message has unchanged.
        self._noop.apply_async((1, 2, label), eta=due)

    hold = schedule

    def move(self) -> None:
        while True:
            get_scheduler(self._app).execute_pending(datetime.now(timezone.utc))
            Event().wait(1)


def _noop(x: int, y: int, label: str) -> None:
    pass


if __name__ == "__main__":
    run(Longterm(sys.argv[1]))
