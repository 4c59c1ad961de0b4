"""Celery's ``countdown`` with RabbitMQ and a classic queue."""

import os

from tests.lab.comparison.ways.celery_eta import CeleryEta, make_app, worker

app = make_app(os.environ["COMPARISON_RABBITMQ"])


class Driver(CeleryEta):
    roles = {"worker": worker(__name__)}
    app = app
