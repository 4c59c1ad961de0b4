"""`delayq.cancel`: its answer, the result, and the workers; tests/store has a task's places."""

import base64
import json

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


def test_nothing_is_stored_for_a_task_that_ignores_results(app, delayq):
    @app.task(name="t", ignore_result=True)
    def task():
        return None

    result = task.delay_until(FAR)

    assert result.cancel() is Outcome.DONE
    assert app.AsyncResult(result.id).state == "PENDING"


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
    # The result of a task that has left is its own.
    assert result.state == ("PENDING" if due == LONG_AGO else "REVOKED")


def test_a_caller_that_waits_over_rpc_gets_the_revocation(delayq_app, url):
    app = delayq_app("memory://", "rpc://", delayq_url=url)
    result = app.signature("t").delay_until(FAR)

    assert result.cancel() is Outcome.DONE

    with pytest.raises(TaskRevokedError):
        result.get(timeout=30)
