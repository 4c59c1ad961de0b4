"""Scheduling returns a Celery result that also knows the due time and the state in the store."""

from datetime import datetime, timedelta, timezone

import pytest
from celery.app.task import Context
from celery.exceptions import TimeoutError as CeleryTimeoutError
from celery.result import AsyncResult, denied_join_result
from kombu import Exchange, Queue

from celery_delayq import Outcome, State
from celery_delayq.core.integration.results import scheduled
from tests.app.bulk import plain_task
from tests.app.conftest import app_with_results as app
from tests.app.support import FAR, LONG_AGO, to_ms
from tests.support.places import at, take
from tests.support.waiting import eventually

__all__ = ["app"]

pytestmark = [pytest.mark.core, pytest.mark.libraries]

UTC = timezone.utc
DUE = datetime.fromtimestamp(FAR, UTC)


def test_the_state_is_scheduled_while_it_waits_and_the_backend_s_after_that(app, add, delayq):
    result = add.delay_until(LONG_AGO, 1)
    assert (result.state, result.status) == ("SCHEDULED", "SCHEDULED")

    delayq.hand_over()
    assert (result.state, result.status) == ("PENDING", "PENDING")

    app.backend.store_result(result.id, None, "STARTED")
    assert result.state == "STARTED"
    app.backend.store_result(result.id, 5, "SUCCESS")
    assert result.state == "SUCCESS"
    assert result.get(timeout=30) == 5


def test_a_result_that_waits_is_not_ready_and_get_times_out(add):
    result = add.delay_for(3600, 1)

    assert not result.ready()
    assert not result.successful()
    assert not result.failed()
    with pytest.raises(CeleryTimeoutError):
        result.get(timeout=0.05)


def test_the_state_is_scheduled_although_the_backend_knows_an_old_result_of_that_id(app, add):
    app.backend.store_result("a", 5, "SUCCESS")

    result = add.s(1).set(task_id="a").delay_for(3600)

    assert result.state == "SCHEDULED"


def test_the_state_is_scheduled_while_a_scanner_publishes_it(delayq_app, url):
    app = delayq_app(url, url)
    topic = Queue("q", Exchange("x", type="topic"), routing_key="#")
    app.send_task("t", task_id="a", queue=topic, delayq_at=LONG_AGO)
    result = scheduled(AsyncResult("a", app=app), app.delayq.services, 0)

    take(app.delayq, "leased", "a")

    assert app.delayq.state("a") is State.IN_FLIGHT
    assert result.state == "SCHEDULED"
    assert result.cancel() is Outcome.IN_FLIGHT


def test_the_state_of_a_dead_task_is_dead(delayq_app, url):
    app = delayq_app(url, url)

    at(app.delayq, "dead", queue="broken")

    assert app.delayq.state("a") is State.DEAD
    assert scheduled(AsyncResult("a", app=app), app.delayq.services, 0).state == "DEAD"
    assert "broken" in app.delayq.get("a").reason


def test_cancel_and_reschedule_are_the_store_s(add, delayq):
    result = add.delay_until(DUE, 1)
    assert delayq.get(result.id).id == result.id
    assert (result.due, result.due.tzinfo) == (DUE, UTC)
    assert result == AsyncResult(result.id)

    for move, days in (
        (lambda: result.reschedule(DUE + timedelta(days=1)), 1),
        (lambda: result.reschedule(at=FAR), 0),
        (lambda: result.reschedule(by=86_400), 1),
    ):
        assert move() is Outcome.DONE
        assert result.due == DUE + timedelta(days=days) == delayq.get(result.id).due
    assert result.reschedule(after=60)
    assert result.due < DUE
    assert result.cancel() is Outcome.DONE
    assert result.cancel() is Outcome.NOT_FOUND
    assert result.reschedule(DUE) is Outcome.NOT_FOUND


def test_the_due_time_of_a_result_is_what_it_was_told_and_get_knows_better(add, delayq):
    result = add.delay_until(DUE, 1)

    delayq.reschedule(result.id, by=60)

    assert result.due == DUE
    assert delayq.get(result.id).due == DUE + timedelta(seconds=60)


def test_the_due_time_is_unchanged_when_moving_failed(add, delayq):
    result = add.delay_until(LONG_AGO, 1)
    delayq.hand_over()

    assert result.reschedule(DUE) is Outcome.HANDED_OVER
    assert to_ms(result.due) == LONG_AGO * 1000


def test_a_result_has_no_parent_and_no_children_where_celery_s_has_none(add):
    held, plain = add.delay_for(60, 1), add.delay(1)

    assert (held.parent, held.children) == (plain.parent, plain.children)


def test_without_a_result_backend_the_state_is_known_while_it_waits(delayq_app, url):
    app = delayq_app(url)
    assert app.backend.__class__.__name__ == "DisabledBackend"

    @app.task(name="t")
    def task():
        return None

    result = task.delay_until(LONG_AGO)
    assert result.state == "SCHEDULED"
    assert result.cancel()
    with pytest.raises(Exception, match="DisabledBackend") as plain:
        _ = AsyncResult(result.id, app=app).state
    with pytest.raises(type(plain.value)):
        _ = result.state


def test_due_of_a_request_is_the_time_that_its_message_was_due(delayq):
    assert delayq.due_of(Context({"delayq_due": FAR * 1000, "id": "a"})) == DUE
    assert delayq.due_of(Context({"id": "a"})) is None


# Subscriptions: a Redis result backend has one for each call, except for calls of a running task.


@pytest.fixture
def server(start_redis):
    """A Redis that only this test's app subscribes to."""
    return start_redis()


@pytest.fixture
def subscribing(delayq_app, server):
    """A task whose results are there."""
    return plain_task(delayq_app(server.url(), server.url(1)))


@pytest.fixture
def subscriptions(server):
    """The number of subscriptions and unsubscriptions so far."""
    client = server.client()

    def counted():
        stats = client.info("commandstats")
        names = ("cmdstat_subscribe", "cmdstat_unsubscribe")
        return tuple(stats[name]["calls"] if name in stats else 0 for name in names)

    return counted


def test_a_result_that_nothing_subscribed_to_takes_no_subscription_back(subscribing, subscriptions):
    kept = subscribing.delay_until(FAR, 1)
    eventually(lambda: subscriptions() == (1, 0))

    with denied_join_result():
        for number in range(3):
            subscribing.delay_until(FAR, number)
    del kept

    # What it sent comes after all that the others would have sent.
    eventually(lambda: subscriptions()[1])
    assert subscriptions() == (1, 1)


def test_a_result_takes_back_what_its_call_subscribed_to(subscribing, subscriptions):
    kept = subscribing.delay_until(FAR, 1)
    result = subscribing.delay_until(FAR, 2)
    eventually(lambda: subscriptions() == (2, 0))
    del result

    eventually(lambda: subscriptions() == (2, 1))
    assert kept.cancel()
