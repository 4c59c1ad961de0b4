"""`celery -A proj delayq adopt`."""

from datetime import datetime, timedelta, timezone

import pytest
from celery import Celery

FAR = datetime.now(timezone.utc) + timedelta(days=1)


@pytest.fixture
def stranger(url):
    with Celery("stranger", broker=url, set_as_current=False) as app:
        for task_id in "ab":
            app.send_task("t", task_id=task_id, eta=FAR)
        app.send_task("t", task_id="c", eta=FAR, queue="other")
        yield app


def test_a_dry_run_says_how_many_it_would_be(stranger, app, said):
    assert said("adopt", "--dry-run") == ["2 messages would be adopted"]
    assert app.delayq.counts().scheduled == 0


def test_it_says_how_many_it_adopted(stranger, app, said):
    assert said("adopt", "--yes") == ["2 messages adopted"]
    assert {one.id for one in app.delayq.tasks()} == {"a", "b"}


def test_of_a_queue_that_is_named(stranger, app, said):
    assert said("adopt", "--yes", "--queue", "other") == ["1 message adopted"]
    assert [one.id for one in app.delayq.tasks()] == ["c"]


def test_it_asks_before_and_does_nothing_without_a_yes(stranger, app, run):
    result = run("adopt")

    assert "adopt 2 messages? [y/N]" in result.output
    assert result.exit_code == 1
    assert app.delayq.counts().scheduled == 0


def test_of_none_it_does_not_ask(app, said):
    assert said("adopt") == ["0 messages adopted"]


def test_a_broker_without_lists_is_a_sentence(delayq_app, url, refused):
    app = delayq_app("amqp://localhost:1//", delayq_url=url)

    [sentence] = refused("adopt", "--yes", app=app)
    assert "the transport of broker_url is 'amqp'; expected a Redis" in sentence
