"""The app of `celery -A tests.worker.tasks`: the test configures it through two variables."""

import json
import os
from contextlib import suppress

from celery import Celery

from celery_delayq import DelayQ
from celery_delayq.core.handover import link
from celery_delayq.core.integration import bootstep, startup
from celery_delayq.core.servers import endpoint
from tests.worker.jobs import define

# On a busy machine, a slow server is not a lost one.
patience = float(os.environ.get("DELAYQ_TEST_PATIENCE", "5"))
startup.FIRST_LOOK = endpoint.TIMEOUT = patience
with suppress(ImportError):  # the core's tests run without it
    from celery_delayq.contrib import store_query

    store_query.ANSWER_WITHIN = patience
link.CONNECT_TIMEOUT, link.REACH = patience, 0.4 * patience
bootstep.STOP_TIMEOUT = max(10.0, patience)
app = Celery("worker-tests")
app.conf.update(json.loads(os.environ["DELAYQ_TEST_CONF"]))
DelayQ(app)
define(app)
