"""An app other than that of `tasks`, with the same configuration."""

import json
import os

from celery import Celery

from celery_delayq import DelayQ

app = Celery("other")
app.conf.update(json.loads(os.environ["DELAYQ_TEST_CONF"]))
DelayQ(app)
