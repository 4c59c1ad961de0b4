"""A project that has removed this package: it has only Celery's own app and worker."""

import json
import os

from celery import Celery

from tests.worker.jobs import RUNS, evidence

app = Celery("worker-tests")
app.conf.update(json.loads(os.environ["DELAYQ_TEST_CONF"]))


@app.task(name="note", bind=True)
def note(self, *args):
    seconds, micros = evidence().time()
    line = {
        "at": seconds + micros / 1_000_000,
        "eta": self.request.eta,
        "args": args,
        "has_delayq": hasattr(app, "delayq"),
    }
    evidence().rpush(RUNS.format(self.request.id), json.dumps(line))
