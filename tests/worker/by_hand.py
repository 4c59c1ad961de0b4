"""An app without its own DelayQ, to which the scanner was added by hand, twice."""

import json
import os

from celery import Celery

from celery_delayq import ScannerStep

app = Celery("worker-tests")
app.conf.update(json.loads(os.environ["DELAYQ_TEST_CONF"]))
app.steps["worker"].add(ScannerStep)
app.steps["worker"].add("celery_delayq:ScannerStep")


@app.task(name="note")
def note():
    """Only the name counts."""
