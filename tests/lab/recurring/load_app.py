"""The app of the scanner processes under load, and of the process that sets the rules."""

import json
import os
from collections.abc import Mapping

from celery import Celery

from celery_delayq import DelayQ

QUEUE = "arrivals"


def make_app(conf: Mapping[str, object]) -> Celery:
    """An app with one task, ``app.noop``, for a queue that no worker reads."""
    made = Celery("recurring-load", set_as_current=False)
    made.conf.update(task_default_queue=QUEUE, **conf)
    DelayQ(made)
    made.noop = made.task(_noop, name="noop", shared=False)
    return made


def _noop(number: int) -> None:
    pass


# A process of another module imports this for `make_app` alone.
if "RECURRING_CONF" in os.environ:
    app = make_app(json.loads(os.environ["RECURRING_CONF"]))
