"""The app of `celery -A tests.worker.tasks`: the test configures it through one variable."""

import json
import os

from celery import Celery

from celery_delayq import DelayQ
from celery_delayq.integration import startup, store_query
from tests.worker.jobs import define

store_query.ANSWER_WITHIN = 5.0  # on a busy machine, a slow store is not a lost one
startup.FIRST_LOOK = 5.0
app = Celery("worker-tests")
app.conf.update(json.loads(os.environ["DELAYQ_TEST_CONF"]))
DelayQ(app)
define(app)
