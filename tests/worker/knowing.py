"""The same app as in :mod:`tasks`, with a task that the other one has not."""

import json

from tests.worker.jobs import GATE, RUNS, evidence
from tests.worker.tasks import app

__all__ = ["app"]


@app.task(name="gone", bind=True)
def gone(self, *args):
    line = {"args": args, "retries": self.request.retries, "expires": self.request.expires}
    evidence().rpush(RUNS.format(self.request.id), json.dumps(line))
    if args and args[0] == "waits":
        evidence().blpop(GATE.format(self.request.id))
    return sum(each for each in args if isinstance(each, int))
