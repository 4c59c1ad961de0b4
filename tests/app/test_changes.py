"""`delayq.cancel` and `delayq.reschedule`: their answers; tests/store has a task's places."""

from datetime import datetime, timedelta, timezone

import pytest
from celery.exceptions import TaskRevokedError
from celery.result import AsyncResult

from celery_delayq import InvalidDueTime, Outcome
from celery_delayq.core.clock import MAX_DUE_MS
from celery_delayq.errors import InvalidOption
from tests.app.conftest import app_with_results as app
from tests.app.support import FAR, LONG_AGO, only_message, redis_ms, to_ms

__all__ = ["app"]

pytestmark = pytest.mark.core

UTC = timezone.utc
DUE = datetime.fromtimestamp(FAR, UTC)


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
    [(LONG_AGO, Outcome.HANDED_OVER, ["revoke"]), (FAR, Outcome.DONE, [])],
    ids=["that has left", "in time"],
)
def test_a_cancel_with_revoke_sends_a_task_that_has_left_to_the_workers(  # noqa: PLR0917
    add, delayq, to_workers, due, outcome, heard
):
    result = add.delay_until(due, 1)
    delayq.hand_over()

    assert result.cancel(revoke=True) is outcome

    assert [method for method, _ in to_workers()] == heard
    # The result of a task that has left is its own.
    assert result.state == ("PENDING" if due == LONG_AGO else "REVOKED")


def test_a_caller_that_waits_over_rpc_gets_the_revocation(delayq_app, url):
    app = delayq_app("memory://", "rpc://", delayq_url=url)
    result = app.signature("t").delay_until(FAR)

    assert result.cancel() is Outcome.DONE

    with pytest.raises(TaskRevokedError):
        result.get(timeout=30)


def test_a_task_is_handed_over_once_however_often_it_was_moved(add, delayq, redis):
    result = add.delay_until(FAR, 1)
    for when in (FAR + 5, LONG_AGO, FAR, LONG_AGO + 5, LONG_AGO):
        assert result.reschedule(when) is Outcome.DONE

    assert delayq.hand_over() == 1

    only_message(redis)
    assert result.reschedule(FAR) is Outcome.HANDED_OVER


@pytest.mark.parametrize(
    ("times", "due"),
    [
        ({"at": (DUE + timedelta(days=9)).isoformat()}, DUE + timedelta(days=9)),
        ({"by": timedelta(weeks=-1)}, DUE - timedelta(weeks=1)),
    ],
    ids=repr,
)
def test_a_task_moves_to_an_instant_or_from_the_present_due_time(add, delayq, times, due):
    result = add.delay_until(FAR, 1)

    assert delayq.reschedule(result.id, **times) is Outcome.DONE

    assert delayq.get(result.id).due == due


def test_a_task_moves_from_now_by_redis_s_clock(add, delayq, redis):
    result = add.delay_until(FAR, 1)
    before = redis_ms(redis)

    delayq.reschedule(result.id, after=timedelta(minutes=5))

    assert before + 300_000 <= to_ms(delayq.get(result.id).due) <= redis_ms(redis) + 300_001


@pytest.mark.parametrize(
    ("times", "error", "words"),
    [
        ({"at": 5, "by": 5}, InvalidOption, "exactly one of at, after, by"),
        ({"after": 1, "by": 1}, InvalidOption, "exactly one of at, after, by"),
        ({"at": "soon"}, InvalidDueTime, "'soon' is not a due time"),
        ({"after": "5"}, InvalidDueTime, "is not a due time"),
        ({"by": MAX_DUE_MS / 1000}, InvalidDueTime, "2255-06-05"),
        ({"after": 240 * 366 * 86_400}, InvalidDueTime, "2255-06-05"),
    ],
    ids=repr,
)
def test_wrong_times_are_refused_in_a_sentence_and_nothing_moves(add, delayq, times, error, words):
    result = add.delay_until(FAR, 1)

    with pytest.raises(error) as caught:
        delayq.reschedule(result.id, **times)

    assert words in str(caught.value)
    assert delayq.get(result.id).due == DUE
