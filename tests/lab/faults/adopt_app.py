"""The app of a worker that adopts, and whose tasks put themselves off; each writes a line."""

import json
import os
import time
from pathlib import Path

from celery import Celery
from dateutil.parser import isoparse

from celery_delayq import DelayQ
from tests.lab.faults.strangers import AFTER_MS

app = Celery("adopting")
app.conf.update(json.loads(os.environ["DELAYQ_TEST_CONF"]))
DelayQ(app)


def _write(request, version, *, failed=False):
    header = request.get("delayq_due")
    eta = request.eta and round(isoparse(request.eta).timestamp() * 1000)
    marked = bool(request.delivery_info.get("redelivered") or request.get("delayq_redelivered"))
    now = time.time_ns() // 1_000_000
    line = [request.id, version, header or eta, now, marked, bool(header), failed]
    # One write: if the worker is killed here, the line is complete or missing.
    with Path(os.environ["DELAYQ_TEST_LINES"]).open("a") as lines:
        lines.write(f"{json.dumps(line)}\n")


def _write_failed(self, _error, _task_id, args, _kwargs, _info):
    _write(self.request, *args, failed=True)


@app.task(bind=True, name="adopted", acks_late=True)
def adopted(self, version):
    _write(self.request, version)


@app.task(bind=True, name="put_off", acks_late=True, on_failure=_write_failed)
def put_off(self, version):
    if not self.request.get("delayq_due"):
        raise self.defer(after=AFTER_MS / 1000)
    _write(self.request, version)
