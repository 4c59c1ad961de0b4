"""Two apps on one store: the old code, which has scheduled, and the new one, which looks."""

import pytest

from tests.app.conftest import delayq_app, redis, redis_client, url

__all__ = ["delayq_app", "redis", "redis_client", "url"]


@pytest.fixture
def old(delayq_app, url, redis_server):
    """The app that has scheduled; with results, which chords need."""
    return delayq_app(url, redis_server.url(1), delayq_history=0)


@pytest.fixture
def new(delayq_app, url, redis_server):
    """Make the app of the new code: ``new({"remind": function}, accept_content=["json"])``."""

    def make(tasks=(), options=(), **conf):
        app = delayq_app(url, redis_server.url(1), **conf)
        for name, function in dict(tasks).items():
            app.task(name=name, shared=False, **dict(options))(function)
        return app

    return make


@pytest.fixture
def look(new):
    """Look with new code: the rows as task, reason, place and count."""

    def look(tasks=(), options=(), **conf):
        return rows_of(new(tasks, options, **conf).delayq.preflight())

    return look


def rows_of(found):
    return [(one.task, one.reason, one.where, one.count) for one in found.misfits]
