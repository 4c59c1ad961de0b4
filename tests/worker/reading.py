"""A project without this package, whose worker notes how it reads the times of each message."""

import json

from celery.signals import task_received

from tests.worker.jobs import evidence
from tests.worker.plain import app

__all__ = ["app"]


@task_received.connect
def read(request, **_):
    times = [moment and moment.timestamp() for moment in (request.eta, request.expires)]
    evidence().set(f"read:{request.id}", json.dumps(times))
