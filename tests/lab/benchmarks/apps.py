"""The Celery apps that are measured, and their no-op task."""

from typing import Any

from celery import Celery

from celery_delayq import DelayQ

QUEUE = "celery"


def make_app(broker: str, backend: str | None = None, **conf: Any) -> Celery:
    """An app with a ``DelayQ`` and a task ``app.noop``; it is not Celery's current app."""
    app = Celery("bench", broker=broker, backend=backend, set_as_current=False)
    app.conf.update(broker_connection_retry_on_startup=True, **conf)
    DelayQ(app)
    app.noop = app.task(_noop, name="bench.noop", shared=False)
    app.noop_ignored = app.task(_noop, name="bench.noop_ignored", shared=False, ignore_result=True)
    return app


def _noop(x: int, y: int) -> None:
    pass
