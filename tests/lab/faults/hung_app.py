"""The app of ``./tests/run hung``, configured through one variable."""

import json
import os

from celery import Celery

from celery_delayq import DelayQ

app = Celery("hung", set_as_current=False)
app.conf.update(json.loads(os.environ.get("DELAYQ_HUNG_CONF", "{}")))
delayq = DelayQ(app)


@app.task(name="note", shared=False)
def note(number):
    pass
