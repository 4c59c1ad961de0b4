"""A program that ends the scanner of its worker: the app of `celery -A tests.worker.ending`.

Its receiver raises what a test has written down; its log's filter, what a variable names.
"""

import asyncio
import logging
import os

from celery_delayq.signals import task_handed_over
from tests.worker.ended import AFTER, AT_START, RAISE
from tests.worker.jobs import evidence
from tests.worker.tasks import app

__all__ = ["app"]


def error_of(name):
    if name == "GreenletExit":
        from gevent import GreenletExit

        return GreenletExit()
    return {"SystemExit": SystemExit(3), "CancelledError": asyncio.CancelledError()}[name]


@task_handed_over.connect(weak=False)
def ends(**_):
    name = evidence().lpop(RAISE)
    if name:
        raise error_of(name.decode())


@task_handed_over.connect(weak=False)
def follows(task_ids, **_):
    evidence().rpush(AFTER, *task_ids)


class Ending(logging.Filter):
    def filter(self, record):
        name = os.environ.pop(AT_START, None) if " started: store" in record.msg else None
        if name:
            raise error_of(name)
        return True


logging.getLogger("celery_delayq.core.handover.scanner").addFilter(Ending())
