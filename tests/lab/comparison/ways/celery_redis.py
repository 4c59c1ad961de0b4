"""Celery's ``countdown`` with a Redis broker."""

import os

from tests.lab.comparison.ways.celery_eta import CeleryEta, make_app, timeout_options, worker

app = make_app(os.environ["COMPARISON_REDIS"], **timeout_options())


class Driver(CeleryEta):
    roles = {"worker": worker(__name__)}
    app = app
