"""An app with rules, on the suite's Redis; no worker runs unless a test starts one."""

import pytest

from tests.app.conftest import delayq, delayq_app, redis, redis_client, url

__all__ = ["delayq", "delayq_app", "redis", "redis_client", "url"]


@pytest.fixture
def app(delayq_app, url):
    app = delayq_app(url, delayq_history=50)

    @app.task(name="report")
    def report(tenant=0):
        pass

    return app


@pytest.fixture
def report(app):
    return app.tasks["report"]
