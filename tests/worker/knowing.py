"""The same app as in :mod:`tasks`, with a task and a compression that the other one has not."""

import json

from kombu import compression

from tests.worker.jobs import GATE, RUNS, evidence
from tests.worker.tasks import app

__all__ = ["TURNED", "app"]

TURNED = "application/x-turned"


def turn(body):
    return body[::-1]


compression.register(turn, turn, TURNED)


@app.task(name="gone", bind=True, max_retries=None)
def gone(self, *args):
    line = {"args": args, "retries": self.request.retries}
    evidence().rpush(RUNS.format(self.request.id), json.dumps(line))
    if "waits" in args:
        evidence().blpop(GATE.format(self.request.id))
    if "retries" in args and not self.request.retries:
        raise self.retry(countdown=3600)
    return sum(each for each in args if isinstance(each, int))
