"""A producer without this package: its messages have an eta, and wait in a worker."""

import contextlib

from celery import Celery


@contextlib.contextmanager
def stranger(url, queue, **conf):
    """An app of a process that has no DelayQ."""
    with Celery("stranger", broker=url, set_as_current=False) as app:
        app.conf.update(task_default_queue=queue, **conf)
        yield app
