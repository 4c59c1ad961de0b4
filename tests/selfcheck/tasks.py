"""A Celery app without this package, to check the fixtures themselves."""

import os

from celery import Celery

app = Celery(
    "selfcheck", broker=os.environ["SELFCHECK_BROKER"], backend=os.environ.get("SELFCHECK_BACKEND")
)
app.conf.broker_connection_retry_on_startup = True


@app.task
def add(x, y):
    return x + y
