"""Apps and workers of the other suites, and scrapes of their metrics."""

import pytest
from prometheus_client import CollectorRegistry

from celery_delayq.operations.queues import Look
from tests.app.conftest import app, delayq, delayq_app, redis, redis_client, url
from tests.metrics.support import Scrape
from tests.worker.conftest import make_project, results_end_together, server

__all__ = ["app", "delayq", "delayq_app", "make_project", "redis", "redis_client"]
__all__ += ["results_end_together", "server", "url"]


@pytest.fixture(autouse=True)
def looked(monkeypatch):
    """The look at unread queues finds none, and starts no thread."""
    monkeypatch.setattr(Look, "__call__", lambda _: [])


@pytest.fixture
def registry():
    return CollectorRegistry()


@pytest.fixture
def scrape(registry):
    """The registry's metrics at this moment, read by Prometheus's own rules."""
    return lambda: Scrape.of(registry)
