"""`delayq_capture_eta`: unchanged code schedules the tasks that Celery would send with an eta."""

import json
from datetime import datetime, timedelta, timezone

import pytest
from celery import chain, group
from celery.exceptions import Retry

from celery_delayq import AlreadyScheduled, InvalidDueTime
from celery_delayq.errors import InvalidOption
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


@pytest.mark.parametrize(
    "call",
    [
        lambda task: task.apply_async((1,), eta=DUE),
        lambda task: task.apply_async((1,), eta=DUE.isoformat()),
        lambda task: task.s(1).set(eta=DUE).apply_async(),
        lambda task: task.s(1).apply_async(eta=DUE),
        lambda task: task.app.send_task("t", (1,), eta=DUE),
    ],
)
def test_an_eta_is_scheduled(task, capturing, redis, call):
    result = call(task)

    held = capturing.delayq.get(result.id)
    assert (held.due, held.args) == (DUE, (1,))
    assert envelope(capturing.delayq, result.id).headers["eta"] is None
    assert lists(redis) == {}


@pytest.mark.parametrize("countdown", [3600, 3600.5])
def test_a_countdown_is_scheduled(task, capturing, redis, countdown):
    before = redis_ms(redis)

    result = task.apply_async((1,), countdown=countdown)

    due = to_ms(capturing.delayq.get(result.id).due)
    assert 0 <= due - before - countdown * 1000 < 60_000


def test_a_call_without_an_eta_is_sent_at_once(task, redis):
    task.delay(1)
    task.apply_async((2,), countdown=0)
    task.apply_async((3,), eta=None, countdown=None)

    assert redis.llen("celery") == 3


def test_a_past_eta_is_sent(task, redis):
    task.apply_async((1,), eta=datetime(2020, 1, 1, tzinfo=UTC))

    assert redis.llen("celery") == 1


@pytest.mark.parametrize(
    ("countdown", "held"), [(50, False), (99, False), (200, True), (600, True)]
)
def test_a_task_due_sooner_than_the_minimum_is_left_to_celery(
    delayq_app, url, redis, countdown, held
):
    app = delayq_app(url, delayq_capture_eta=True, delayq_min_delay=100)

    result = app.send_task("t", (1,), countdown=countdown)

    assert (app.delayq.get(result.id) is not None) is held
    assert redis.llen("celery") == (0 if held else 1)


def test_a_task_that_is_left_to_celery_keeps_its_eta(delayq_app, url, redis):
    app = delayq_app(url, delayq_capture_eta=True, delayq_min_delay=100)

    app.send_task("t", (1,), countdown=60)

    assert json.loads(only_message(redis)[1])["headers"]["eta"]


def test_nothing_is_captured_unless_asked_for(app, delayq, redis):
    result = app.send_task("t", (1,), eta=DUE)

    assert delayq.get(result.id) is None
    assert json.loads(only_message(redis)[1])["headers"]["eta"] == DUE.isoformat()


def test_an_explicit_due_time_beside_the_eta_is_refused(task, capturing):
    with pytest.raises(InvalidOption, match=r"^eta is "):
        task.apply_async((1,), delayq_at=DUE + timedelta(days=1), eta=DUE)

    assert not capturing.delayq.counts().scheduled


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


def test_a_retry_does_not_pass_on_the_due_time_of_the_first_run(task, capturing):
    retry(task, headers={"delayq_due": 5, "trace": "x"})

    headers = envelope(capturing.delayq, "r").headers
    assert headers["delayq_due"] == to_ms(capturing.delayq.get("r").due)
    assert headers["trace"] == "x"


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


def test_a_later_link_with_a_countdown_of_its_own_is_scheduled_when_it_is_sent(task, capturing):
    signature = task.si(2).set(countdown=3600)

    task.apply_async((1,), link=signature)

    assert list(capturing.delayq.tasks()) == []
    capturing.signature(json.loads(json.dumps(signature))).apply_async()
    [held] = capturing.delayq.tasks()
    assert held.args == (2,)
