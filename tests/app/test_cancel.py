"""Cancel removes all traces of a task, returns the true outcome, and stores a result."""

import base64
import json
import logging

import pytest
from celery.exceptions import TaskRevokedError
from celery.result import AsyncResult

from celery_delayq import Outcome
from tests.app.support import FAR, LONG_AGO, lists

pytestmark = pytest.mark.core


@pytest.fixture
def app(app_with_results):
    return app_with_results


def method(said):
    return json.loads(base64.b64decode(json.loads(said["data"])["body"]))["method"]


def own_keys(redis):
    """The names of the store's keys, without its counters."""
    names = {key.decode().rpartition(":")[2] for key in redis.keys("{delayq:*}:*")}
    return names - {"meta"}


def test_a_cancelled_entry_is_gone_from_everywhere_and_others_are_untouched(add, delayq, redis):
    other = add.delay_until(FAR, 1)
    before = delayq.get(other.id)
    result = add.delay_until(FAR, 2)

    assert delayq.cancel(result.id) is Outcome.DONE

    assert delayq.get(result.id) is None
    assert delayq.get(other.id) == before
    assert delayq.counts().scheduled == 1
    assert other.cancel()
    assert own_keys(redis) <= {"tombstones", "calls"}


def test_a_cancelled_task_never_reaches_its_queue(add, delayq, redis):
    result = add.delay_until(LONG_AGO, 1)

    assert result.cancel()

    assert delayq.hand_over() == 0
    assert lists(redis) == {}


def test_get_raises_for_a_caller_that_waits_for_a_cancelled_task(app, add):
    result = add.delay_until(FAR, 1)

    result.cancel()

    assert result.state == "REVOKED"
    with pytest.raises(TaskRevokedError):
        result.get(timeout=30)
    with pytest.raises(TaskRevokedError):
        AsyncResult(result.id, app=app).get(timeout=30)


def test_an_unknown_id_is_not_found_and_nothing_is_stored_for_it(app, delayq):
    assert delayq.cancel("nobody") is Outcome.NOT_FOUND
    assert app.AsyncResult("nobody").state == "PENDING"


def test_a_cancel_of_a_delivered_task_says_so_and_leaves_its_result_alone(app, add, delayq):
    result = add.delay_until(LONG_AGO, 1)
    delayq.hand_over()

    assert result.cancel() is Outcome.HANDED_OVER
    assert result.state == "PENDING"


@pytest.mark.parametrize("outcome", list(Outcome))
def test_only_done_is_true_in_an_if(outcome):
    assert bool(outcome) is (outcome is Outcome.DONE)


def test_a_cancelled_id_can_be_scheduled_again_at_once(add, delayq):
    for number in range(3):
        result = add.s(number).set(task_id="a").delay_until(FAR)
        assert delayq.get("a").args == (number,)
        assert result.cancel() is Outcome.DONE


def test_a_cancelled_id_that_is_scheduled_again_is_scheduled_and_not_revoked(add, delayq, redis):
    add.s(1).set(task_id="a").delay_until(FAR).cancel()

    again = add.s(2).set(task_id="a").delay_until(LONG_AGO)

    assert again.state == "SCHEDULED"
    assert delayq.hand_over() == 1


@pytest.mark.parametrize("text", ["the-id", "*", "the-id\x00", "THE-ID", "the-i", "the-id "])
def test_an_id_in_another_entry_s_arguments_never_matches(add, delayq, text):
    other = add.s("the-id", y={"the-id": text}).set(task_id="other the-id").delay_until(FAR)

    assert delayq.cancel(text) is Outcome.NOT_FOUND
    assert delayq.get(other.id).args == ("the-id",)


def test_nothing_is_stored_for_a_task_that_ignores_results(app, delayq):
    @app.task(name="t", ignore_result=True)
    def task():
        return None

    result = task.delay_until(FAR)

    assert result.cancel() is Outcome.DONE
    assert app.AsyncResult(result.id).state == "PENDING"


@pytest.mark.parametrize("serializer", ["json", "pickle"])
def test_every_kind_of_message_is_revoked(app, delayq, serializer):
    result = app.send_task("t", (1,), serializer=serializer, delayq_at=FAR)

    assert delayq.cancel(result.id) is Outcome.DONE
    assert app.AsyncResult(result.id).state == "REVOKED"


def test_a_compressed_task_is_revoked(add, delayq):
    result = add.s("x" * 5000).set(compression="zlib").delay_until(FAR)

    result.cancel()

    assert result.state == "REVOKED"


def test_without_a_result_backend_the_answer_is_the_same(delayq_app, url, caplog):
    app = delayq_app(url)
    result = app.send_task("t", delayq_at=FAR)

    with caplog.at_level(logging.WARNING):
        assert app.delayq.cancel(result.id) is Outcome.DONE
    assert caplog.messages == []


def test_a_cancel_with_revoke_sends_a_task_that_has_left_to_the_workers(app, add, delayq, redis):
    result = add.delay_until(LONG_AGO, 1)
    delayq.hand_over()

    with redis.pubsub() as workers:
        workers.psubscribe("*celery.pidbox*")
        assert workers.get_message(timeout=30)["type"] == "psubscribe"
        assert result.cancel(revoke=True) is Outcome.HANDED_OVER
        said = workers.get_message(timeout=30)

    assert method(said) == "revoke"


def test_workers_get_no_revoke_of_a_task_that_was_cancelled_in_time(app, add, delayq, redis):
    result = add.delay_until(FAR, 1)

    with redis.pubsub() as workers:
        workers.psubscribe("*celery.pidbox*")
        assert workers.get_message(timeout=30)["type"] == "psubscribe"
        assert result.cancel(revoke=True)
        app.control.broadcast("ping")
        said = workers.get_message(timeout=30)

    # Messages arrive in order: had there been a "revoke", it would be the first.
    assert method(said) == "ping"


def test_a_caller_that_waits_over_rpc_gets_the_revocation(delayq_app, url):
    app = delayq_app("memory://", "rpc://", delayq_url=url)
    result = app.signature("t").delay_until(FAR)

    assert result.cancel() is Outcome.DONE

    with pytest.raises(TaskRevokedError):
        result.get(timeout=30)
