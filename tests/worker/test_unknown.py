"""Tasks of the store that a worker does not know, or cannot read: they go back, and none is lost."""

import json
from datetime import datetime, timedelta, timezone

import pytest
from celery import Celery

from celery_delayq import Outcome, State
from celery_delayq.errors import KeyHeld
from tests.lab.faults.proxy import Proxy
from tests.support.waiting import PATIENCE, eventually
from tests.worker.project import TASKS

pytestmark = pytest.mark.libraries

KNOWING = "tests.worker.knowing"
UNKNOWN = "UNKNOWN"


def call(project, *args, **options):
    """Schedule a call of a task that the project's own worker does not know; due at once."""
    signature = project.app.signature("gone", args=args, app=project.app)
    return project.delayq.schedule(signature, after=0, **options)


def waits(project, result):
    """The task, once a worker has put it back."""

    def put_back():
        task = project.delayq.get(result.id)
        return task if task and "delayq:unknown" in task.tags else None

    return eventually(put_back, PATIENCE, f"{result.id} back in the store")


def times(task):
    return task.headers["delayq_unknown"]["times"]


def seconds_ahead(project, task):
    seconds, micros = project.client.time()
    return task.due.timestamp() - seconds - micros / 1_000_000


def meet_again(project, result, count):
    project.delayq.run_now(result.id)
    eventually(lambda: (task := waits(project, result)) and times(task) == count)
    return waits(project, result)


@pytest.fixture(params=["prefork", "threads", "gevent"])
def each_pool(request, make_project, start_worker, broker_conf):
    project = make_project(**broker_conf)
    project.worker = start_worker(TASKS, "-P", request.param, "-c", "2", env=project.env)
    project.pool = request.param
    return project


@pytest.fixture
def project(make_project, start_worker, broker_conf):
    project = make_project(**broker_conf)
    project.worker = start_worker(TASKS, "-P", "prefork", "-c", "2", env=project.env)
    return project


def test_a_task_without_a_worker_that_knows_it_comes_again_and_runs_at_the_first_one_that_does(
    each_pool, start_worker
):
    project = each_pool
    result = call(project, 40, 2)

    task = waits(project, result)

    assert (task.state, task.task, task.args, task.queue) == (
        State.SCHEDULED, "gone", (40, 2), project.queue,
    )  # fmt: skip
    assert task.error == f"{project.worker.name} has no task of this name"
    assert 50 < seconds_ahead(project, task) <= 60
    assert [one.id for one in project.delayq.select(state="unknown")] == [result.id]
    again = meet_again(project, result, 2)
    assert 110 < seconds_ahead(project, again) <= 120
    project.worker.stop()
    start_worker(KNOWING, "-P", project.pool, "-c", "2", env=project.env)
    assert project.delayq.select(state=UNKNOWN).run_now() == 1
    assert result.get(timeout=PATIENCE) == 42
    assert len(project.wait_runs(result)) == 1
    assert project.delayq.counts().unknown == 0
    assert project.queued() == 0
