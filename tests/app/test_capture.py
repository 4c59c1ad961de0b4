"""`delayq_capture_eta`: unchanged code schedules the tasks that Celery would send with an eta."""

import json
from datetime import datetime, timedelta, timezone

import pytest
from celery import chain, group
from celery.exceptions import Retry

from celery_delayq import AlreadyScheduled, InvalidDueTime
from tests.app.support import FAR, envelope, lists, only_message, redis_ms, to_ms

pytestmark = [pytest.mark.core, pytest.mark.libraries]

UTC = timezone.utc
DUE = datetime.fromtimestamp(FAR, UTC)


@pytest.fixture
def capturing(delayq_app, url):
    return delayq_app(url, delayq_capture_eta=True)


@pytest.fixture
def task(capturing):
    @capturing.task(name="t", bind=True, max_retries=5)
    def task(self, x=0):
        return x

    return task


CALLS = {
    "apply_async": lambda task: task.apply_async((1,), eta=DUE),
    "text": lambda task: task.apply_async((1,), eta=DUE.isoformat()),
    "an option of the signature": lambda task: task.s(1).set(eta=DUE).apply_async(),
    "signature": lambda task: task.s(1).apply_async(eta=DUE),
    "send_task": lambda task: task.app.send_task("t", (1,), eta=DUE),
}


@pytest.mark.parametrize("call", CALLS)
def test_an_eta_is_scheduled(task, capturing, redis, call):
    result = CALLS[call](task)

    held = capturing.delayq.get(result.id)
    assert (held.due, held.args) == (DUE, (1,))
    # A worker would hold a message with an eta.
    assert envelope(capturing.delayq, result.id).headers["eta"] is None
    assert lists(redis) == {}


@pytest.mark.parametrize("countdown", [3600, 3600.5])
def test_a_countdown_is_scheduled(task, capturing, redis, countdown):
    before = redis_ms(redis)

    result = task.apply_async((1,), countdown=countdown)

    due = to_ms(capturing.delayq.get(result.id).due)
    assert 0 <= due - before - countdown * 1000 < 60_000
    assert envelope(capturing.delayq, result.id).headers["eta"] is None


AT_ONCE = {
    "no time": {},
    "no seconds": {"countdown": 0},
    "none": {"eta": None, "countdown": None},
    "a past eta": {"eta": datetime(2020, 1, 1, tzinfo=UTC)},
}


@pytest.mark.parametrize("kind", AT_ONCE)
def test_a_call_without_a_future_eta_is_sent_at_once(task, capturing, redis, kind):
    task.apply_async((1,), **AT_ONCE[kind])

    assert (redis.llen("celery"), capturing.delayq.counts().scheduled) == (1, 0)


@pytest.mark.parametrize("countdown", [50, 99, 200, 600])
def test_a_task_due_sooner_than_the_minimum_is_left_to_celery_with_its_eta(
    capturing, redis, countdown
):
    capturing.conf.delayq_min_delay = 100

    result = capturing.send_task("t", (1,), countdown=countdown)

    assert (capturing.delayq.get(result.id) is None) is (countdown < 100)
    sent = [json.loads(raw)["headers"]["eta"] for raw in redis.lrange("celery", 0, -1)]
    assert [bool(eta) for eta in sent] == [True] * (countdown < 100)


def test_nothing_is_captured_unless_asked_for(app, delayq, redis):
    result = app.send_task("t", (1,), eta=DUE)

    assert delayq.get(result.id) is None
    assert json.loads(only_message(redis)[1])["headers"]["eta"] == DUE.isoformat()


def retry(task, task_id="r", **options):
    """Retry as a worker does: inside the task, with the request of its message."""
    task.push_request(id=task_id, args=(1,), kwargs={}, retries=1, called_directly=False, **options)
    try:
        with pytest.raises(Retry):
            task.retry(countdown=3600)
    finally:
        task.pop_request()


def test_a_retry_is_scheduled_under_the_same_id(task, capturing, redis):
    retry(task)

    held = capturing.delayq.get("r")
    assert held.args == (1,)
    assert envelope(capturing.delayq, "r").headers["retries"] == 2
    assert 3540_000 < to_ms(held.due) - redis_ms(redis) <= 3600_001


def test_a_retry_beyond_the_expiry_of_its_task_is_scheduled_with_a_warning(task, capturing, caplog):
    hours = {"a": 2, "b": 0.5}
    with caplog.at_level("WARNING"):
        for task_id, left in hours.items():
            expires = datetime.now(UTC) + timedelta(hours=left)
            retry(task, task_id, expires=expires.isoformat())

    assert [capturing.delayq.get(task_id).id for task_id in hours] == [*hours]
    [warned] = [one for one in caplog.messages if "expires at" in one]
    assert warned.startswith("task b: due at ")


def test_two_captured_calls_with_one_id_are_a_conflict(task, capturing):
    task.apply_async((1,), task_id="a", eta=DUE)

    with pytest.raises(AlreadyScheduled):
        task.apply_async((2,), task_id="a", eta=DUE)
    assert capturing.delayq.get("a").args == (1,)


@pytest.mark.parametrize("eta", [datetime(3000, 1, 1, tzinfo=UTC), "tomorrow"], ids=str)
def test_an_eta_that_no_store_can_keep_is_left_to_celery_unless_the_call_is_ours(
    task, redis, caplog, eta
):
    with pytest.raises(InvalidDueTime):
        task.apply_async((1,), eta=eta, delayq_key="k")
    assert redis.keys() == []

    task.apply_async((1,), eta=eta)

    assert json.loads(only_message(redis)[1])["headers"]["eta"] in (eta, str(eta).replace(" ", "T"))
    [said] = caplog.messages
    assert said.startswith("a call of t is left to Celery: its eta ")


def test_parts_of_a_group_are_scheduled_one_by_one(task, capturing):
    result = group(task.s(1), task.s(2)).apply_async(countdown=3600)

    assert [capturing.delayq.get(part.id).args for part in result] == [(1,), (2,)]


def test_only_the_first_link_of_a_chain_is_scheduled(task, capturing, redis):
    result = chain(task.s(1), task.si(2), task.si(3)).apply_async(countdown=3600)

    [held] = capturing.delayq.tasks()
    assert held.args == (1,)
    assert held.id == result.parent.parent.id
    assert lists(redis) == {}
