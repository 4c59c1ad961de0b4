"""The broker delays it: Celery does this if queues are quorum queues."""

import os

from tests.lab.comparison.ways.celery_eta import CeleryEta, make_app, worker

app = make_app(
    os.environ["COMPARISON_RABBITMQ"],
    task_default_queue_type="quorum",
    # A direct exchange cannot delay.
    task_default_exchange_type="topic",
)


class Driver(CeleryEta):
    roles = {"worker": worker(__name__)}
    app = app
    declared_by_workers = True
