"""A copy of an app, in this process or another one, has its own DelayQ."""

import copy
import multiprocessing
import pickle

import pytest
from celery import Celery
from celery.app.amqp import AMQP
from celery.app.control import Control

from celery_delayq import DelayQ, Outcome
from tests.app.support import FAR, LONG_AGO, lists, noop

pytestmark = pytest.mark.libraries


def pickled(app):
    return pickle.loads(pickle.dumps(app))


@pytest.fixture(params=[copy.deepcopy, copy.copy, pickled])
def copied(request, app):
    made = request.param(app)
    yield made
    made.delayq.close()
    made.close()


def test_a_copy_sends_and_schedules(app, copied, delayq, redis):
    copied.send_task("t", task_id="sent")
    copied.send_task("t", (1,), task_id="a", delayq_at=FAR)

    assert len(lists(redis)[b"celery"]) == 1
    assert delayq.get("a").args == (1,)
    assert copied.delayq is not delayq
    assert copied.delayq.app is copied
    assert copied.control.revoke("a") is None
    assert delayq.get("a") is None


def test_a_copy_s_tasks_wait_with_those_of_the_app(app, copied, delayq):
    app.conf.delayq_prefix = copied.conf.delayq_prefix = "shop"
    task = copied.task(name="t", shared=False)(noop)

    result = task.delay_for(3600, 1)

    assert delayq.cancel(result.id) is Outcome.DONE


def test_a_copy_s_worker_scans_and_has_the_option(app, copied):
    assert copied.steps["worker"] == app.steps["worker"]
    assert len(copied.user_options["worker"]) == 1
    assert "celery_delayq.launch" in copied.tasks


def test_a_copy_of_a_copy_is_one_as_well(app):
    twice = pickled(copy.deepcopy(app))

    assert twice.delayq.app is twice
    twice.delayq.close()
    twice.close()


def test_making_a_delayq_of_a_copy_gives_what_it_has(copied):
    assert DelayQ(copied).services is copied.delayq.services


class OwnAMQP(AMQP):
    """Of a user."""


class OwnControl(Control):
    """Of a user."""


def test_a_copy_keeps_the_classes_of_the_user(url):
    app = Celery("own", broker=url, amqp=OwnAMQP, control=OwnControl, set_as_current=False)
    delayq = DelayQ(app)

    made = copy.deepcopy(app)
    made.send_task("t", task_id="a", delayq_at=FAR)

    assert isinstance(made.amqp, OwnAMQP)
    assert isinstance(made.control, OwnControl)
    assert delayq.cancel("a")
    for one in (made, app):
        one.delayq.close()
        one.close()


def schedule_in(app):
    app.send_task("t", task_id="there", delayq_at=LONG_AGO)
    app.delayq.close()


def test_an_app_that_is_passed_to_a_spawned_process_schedules_there(app, delayq):
    process = multiprocessing.get_context("spawn").Process(target=schedule_in, args=(app,))

    process.start()
    process.join(60)

    assert process.exitcode == 0
    assert delayq.get("there") is not None
