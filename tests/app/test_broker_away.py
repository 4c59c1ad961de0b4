"""Scheduling needs the store only: it works with the broker down, and never connects to it."""

import logging

import pytest
from celery import group

from tests.app.support import FAR
from tests.support.network import Listener
from tests.support.ports import free_port

pytestmark = pytest.mark.libraries


def task_of(app, **options):
    @app.task(name="t", **options)
    def task(x=0):
        return x

    return task


@pytest.fixture
def away(delayq_app, url):
    """An app whose RabbitMQ URL has no server behind it."""
    return delayq_app(f"amqp://guest:guest@127.0.0.1:{free_port()}//", delayq_url=url)


NO_PATIENCE = {
    "retry_policy": {"max_retries": 1, "interval_start": 0, "interval_step": 0, "timeout": 1}
}

CALLS = {
    "delay_until": lambda task: task.delay_until(FAR, 1),
    "apply_async": lambda task: task.apply_async((1,), delayq_after=60),
    "send_task": lambda task: task.app.send_task("t", (1,), delayq_after=60),
    "expires": lambda task: task.s(1).set(expires=60).delay_for(60),
    "queue": lambda task: task.s(1).set(queue="mail").delay_for(60),
    "group": lambda task: group(task.s(1), task.s(2)).delay_for(60),
    "chain": lambda task: (task.s(1) | task.s(2)).delay_for(60),
}


@pytest.mark.parametrize("capture", [False, True])
@pytest.mark.parametrize("transport", ["amqp", "redis"])
def test_scheduling_opens_no_connection_to_the_broker(delayq_app, url, transport, capture):
    with Listener() as broker:
        app = delayq_app(
            f"{transport}://127.0.0.1:{broker.port}//",
            delayq_url=url,
            delayq_capture_eta=capture,
        )
        task = task_of(app)
        results = [one(task) for one in CALLS.values()]
        if capture:
            results.append(task.apply_async((1,), countdown=60))
            results.append(task.s(1).apply_async(countdown=60, expires=120))
        for result in results:
            assert app.delayq.cancel(result.id)

        assert broker.connections == 0


def test_the_revoke_of_a_scheduled_task_needs_no_broker(away):
    away.send_task("t", task_id="a", delayq_at=FAR)

    away.control.revoke("a")

    assert away.delayq.get("a") is None


def test_a_result_backend_that_is_down_does_not_change_the_answer_to_a_cancel(
    delayq_app, url, start_redis, caplog
):
    results = start_redis()
    app = delayq_app(url, results.url(), result_backend_transport_options=NO_PATIENCE)
    result = app.send_task("t", delayq_at=FAR)
    results.kill()

    with caplog.at_level(logging.WARNING, "celery_delayq"):
        outcome = app.delayq.cancel(result.id)

    assert outcome
    assert app.delayq.get(result.id) is None
    assert f"task {result.id}: REVOKED could not be stored" in caplog.messages


def test_tasks_that_ignore_results_are_scheduled_while_the_result_backend_is_down(delayq_app, url):
    app = delayq_app(url, f"redis://127.0.0.1:{free_port()}/0")
    task = task_of(app, ignore_result=True)

    result = task.delay_until(FAR)

    assert result.cancel()
