"""A running task may schedule itself again under its own id; no other task may take it."""

import json

import pytest
from celery._state import _task_stack
from celery.exceptions import Reject, Retry

from celery_delayq import AlreadyScheduled
from celery_delayq.errors import KeyHeld
from tests.app.support import FAR, LONG_AGO
from tests.support.places import take

pytestmark = pytest.mark.libraries


@pytest.fixture
def app(delayq_app, url):
    return delayq_app(url, delayq_capture_eta=True)


@pytest.fixture
def task(app):
    @app.task(name="t", bind=True, max_retries=9)
    def task(self, x=0):
        return x

    return task


@pytest.fixture
def running(task):
    """Be a worker that runs a task: ``running("its-id")``."""

    def be(task_id, **more):
        _task_stack.push(task)
        task.push_request(id=task_id, args=(5,), kwargs={}, called_directly=False, **more)

    yield be
    task.pop_request()
    _task_stack.pop()


def test_a_retry_takes_the_place_of_an_entry_that_brought_the_running_copy(app, task, running):
    # Published, but still in the store: its acknowledgement was lost. (An exchange needs a relay.)
    task.s(1).set(task_id="a", exchange="mail", routing_key="m").delay_until(LONG_AGO)
    take(app.delayq, "leased", "a")
    running("a")

    with pytest.raises(Retry):
        task.retry(countdown=3600)

    assert app.delayq.get("a").args == (5,)
    assert app.delayq.counts().scheduled == 1


def test_a_retry_leaves_a_task_alone_that_was_scheduled_meanwhile(app, task, running):
    task.s(1).set(task_id="a").delay_until(FAR)
    running("a")

    with pytest.raises(Reject) as refused:
        task.retry(countdown=3600)

    assert isinstance(refused.value.reason, AlreadyScheduled)
    assert app.delayq.get("a").args == (1,)


@pytest.mark.parametrize(("retries", "is_revoked"), [(0, False), (1, True)])
def test_a_run_that_gives_way_to_another_task_is_revoked_only_if_that_was_its_retry(
    delayq_app, url, running, retries, is_revoked
):
    app = delayq_app(url, url)
    app.delayq.schedule(app.signature("t"), at=FAR, key="k")
    running("a")

    app.send_task(
        "t",
        task_id="a",
        retries=retries,
        delayq_at=FAR + 1,
        delayq_key="k",
        delayq_conflict="keep",
    )

    assert (app.AsyncResult("a").state == "REVOKED") is is_revoked


# With a key that is held until the run has finished.


@pytest.fixture
def holding(app, task, running, redis):
    """Be a worker that runs the task `a`, which holds the key `k`."""
    sync(app, task, 1)
    app.delayq.hand_over()
    message = json.loads(redis.lindex("celery", 0))
    running("a", delayq_hold=message["headers"]["delayq_hold"])


def sync(app, task, x):
    signature = task.s(x).set(task_id="a")
    return app.delayq.schedule(signature, after=0, key="k", unique_until="finished")


@pytest.mark.usefixtures("holding")
def test_a_run_that_schedules_its_own_id_and_key_meets_itself_like_any_other(app, task):
    with pytest.raises(KeyHeld) as refused:
        sync(app, task, 2)
    assert refused.value.holder == "a"


@pytest.mark.usefixtures("holding")
def test_a_retry_takes_its_task_s_key_along(app, task):
    with pytest.raises(Retry):
        task.retry(countdown=3600)
    assert app.delayq.get(key="k").id == "a"
