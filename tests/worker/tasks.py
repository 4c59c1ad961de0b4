"""The app of `celery -A tests.worker.tasks`: the test configures it through two variables."""

import gc
import json
import os
from contextlib import suppress

from celery import VERSION, Celery

from celery_delayq import DelayQ
from tests.support.limits import Limits
from tests.worker.jobs import define

# A child that launches a chord subscribes to the results of its parts, and the collector may end
# those of an earlier one meanwhile: it would wait for its own lock; see tests/support/garbage.py.
if VERSION < (5, 5):
    gc.disable()
# On a busy machine, a slow server is not a lost one.
patience = float(os.environ.get("DELAYQ_TEST_PATIENCE", "5"))
limits = Limits()
limits(answer_s=patience, broker_connect_s=patience, broker_reach_s=0.4 * patience)
limits(worker_first_look_s=patience, worker_stop_s=max(10.0, patience))
with suppress(ImportError):  # the core's tests run without it
    limits(query_answer_s=patience)
app = Celery("worker-tests")
app.conf.update(json.loads(os.environ["DELAYQ_TEST_CONF"]))
DelayQ(app)
define(app)
