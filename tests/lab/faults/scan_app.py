"""The app of scanner processes: configured by the test, through one variable."""

import json
import os

from celery import Celery

from celery_delayq import DelayQ

app = Celery("fault-tests")
app.conf.update(json.loads(os.environ["DELAYQ_TEST_CONF"]))
DelayQ(app)
