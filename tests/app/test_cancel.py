"""`delayq.cancel`: its answer, the result, and the workers; tests/store has a task's places."""

import base64
import json
import logging

import pytest
from celery.exceptions import TaskRevokedError
from celery.result import AsyncResult

from celery_delayq import Outcome
from tests.app.conftest import app_with_results as app
from tests.app.support import FAR, LONG_AGO

__all__ = ["app"]

pytestmark = pytest.mark.core


def method(said):
    return json.loads(base64.b64decode(json.loads(said["data"])["body"]))["method"]


def test_get_raises_for_a_caller_that_waits_for_a_cancelled_task(app, add):
    result = add.delay_until(FAR, 1)

    result.cancel()

    assert result.state == "REVOKED"
    with pytest.raises(TaskRevokedError):
        result.get(timeout=30)
    with pytest.raises(TaskRevokedError):
        AsyncResult(result.id, app=app).get(timeout=30)


def test_a_cancel_of_a_delivered_task_says_so_and_leaves_its_result_alone(add, delayq):
    result = add.delay_until(LONG_AGO, 1)
    delayq.hand_over()

    assert result.cancel() is Outcome.HANDED_OVER
    assert result.state == "PENDING"


def test_a_cancelled_id_can_be_scheduled_again_and_is_not_revoked(add, delayq):
    for number in range(3):
        result = add.s(number).set(task_id="a").delay_until(FAR)
        assert delayq.get("a").args == (number,)
        assert result.state == "SCHEDULED"
        assert result.cancel() is Outcome.DONE


def test_nothing_is_stored_for_a_task_that_ignores_results(app, delayq):
    @app.task(name="t", ignore_result=True)
    def task():
        return None

    result = task.delay_until(FAR)

    assert result.cancel() is Outcome.DONE
    assert app.AsyncResult(result.id).state == "PENDING"


def test_without_a_result_backend_the_answer_is_the_same(delayq_app, url, caplog):
    app = delayq_app(url)
    result = app.send_task("t", delayq_at=FAR)

    with caplog.at_level(logging.WARNING):
        assert app.delayq.cancel(result.id) is Outcome.DONE
    assert caplog.messages == []


@pytest.mark.parametrize(
    ("due", "outcome", "heard"),
    [(LONG_AGO, Outcome.HANDED_OVER, ["revoke", "ping"]), (FAR, Outcome.DONE, ["ping"])],
    ids=["that has left", "in time"],
)
def test_a_cancel_with_revoke_sends_a_task_that_has_left_to_the_workers(
    app, add, delayq, redis, *, due, outcome, heard
):
    result = add.delay_until(due, 1)
    delayq.hand_over()

    with redis.pubsub() as workers:
        workers.psubscribe("*celery.pidbox*")
        assert workers.get_message(timeout=30)["type"] == "psubscribe"
        assert result.cancel(revoke=True) is outcome
        app.control.broadcast("ping")
        said = [method(workers.get_message(timeout=30)) for _ in heard]

    assert said == heard


def test_a_caller_that_waits_over_rpc_gets_the_revocation(delayq_app, url):
    app = delayq_app("memory://", "rpc://", delayq_url=url)
    result = app.signature("t").delay_until(FAR)

    assert result.cancel() is Outcome.DONE

    with pytest.raises(TaskRevokedError):
        result.get(timeout=30)
