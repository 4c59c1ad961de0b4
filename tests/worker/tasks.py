"""What `celery -A tests.worker.tasks` runs: configured by the test, through one variable."""

import json
import os

from celery import Celery

from celery_delayq import DelayQ
from tests.worker.jobs import define

app = Celery("worker-tests")
app.conf.update(json.loads(os.environ["DELAYQ_TEST_CONF"]))
DelayQ(app)
define(app)
