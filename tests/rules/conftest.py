"""An app with rules, on the suite's Redis; no worker runs unless a test starts one."""

import pytest

from celery_delayq.core.hooks import Hooks
from tests.app.conftest import delayq, delayq_app, redis, redis_client, url
from tests.cli.conftest import misused, no_workers, project, run
from tests.rules.support import DAILY, HOUR, every, set_back, set_fields, write

__all__ = ["delayq", "delayq_app", "redis", "redis_client", "url"]
__all__ += ["misused", "no_workers", "project", "run"]


@pytest.fixture
def app(delayq_app, url):
    app = delayq_app(url, delayq_history=50, delayq_undo=(3600, 100))

    @app.task(name="report")
    def report(tenant=0):
        pass

    return app


@pytest.fixture
def report(app):
    return app.tasks["report"]


@pytest.fixture
def rule(delayq, report):
    return every(delayq, "r", report.s(7), DAILY)


@pytest.fixture
def omitted(delayq):
    """The slots that a writer told of as left out."""
    heard = []
    delayq.services.hooks.add(Hooks(slots_omitted=lambda *facts: heard.append(facts)))
    return heard


@pytest.fixture
def spoil(redis):
    """Give the runs of a rule an option that no task takes: ``spoil("bad")``."""
    options, wrong = r"options\": {", r"options\": {\"delayq_late\": 5"
    return lambda name: set_fields(redis, name, plan=lambda plan: plan.replace(options, wrong))


@pytest.fixture
def troubled(delayq, report, redis, spoil):
    """A rule whose runs cannot be made; a writer has looked at it."""
    rule = every(delayq, "bad", report.s(7), HOUR)
    spoil("bad")
    set_back(delayq, redis, "bad", hours=2)
    write(delayq)
    assert delayq.counts().troubled_rules == 1
    return rule
