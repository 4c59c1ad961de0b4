"""A canvas whose launch fails waits until it can be launched, and operators see that it does."""

import pytest
from celery import chord

from tests.support.redis_server import RedisServer
from tests.support.waiting import PATIENCE, eventually
from tests.worker.project import TASKS

pytestmark = pytest.mark.libraries

QUICKLY = {"retry_policy": {"max_retries": 1, "interval_start": 0, "interval_step": 0}}


@pytest.fixture
def results():
    with RedisServer() as one:
        yield one


@pytest.fixture
def project(make_project, results, broker_conf):
    conf = {"result_backend": results.url(), "result_backend_transport_options": QUICKLY}
    return make_project(**conf, **broker_conf)


@pytest.fixture
def launched(project):
    """A chord that is due."""
    add, total = project.tasks["add"], project.tasks["total"]
    return chord([add.s(1, 1), add.s(2, 2)], total.s()).delay_for(0)


def test_a_chord_whose_result_backend_is_away_when_it_is_due_runs_when_that_is_back(
    project, launched, results, start_worker
):
    results.kill()
    start_worker(TASKS, "-P", "threads", "-c", "2", env=project.env)

    task = eventually(lambda: refused(project, launched))
    assert task.error.startswith("cannot launch, result backend: ")
    assert any("refused" in one for one in project.delayq.health())
    assert [project.runs(one) for one in launched.parent.results] == [[], []]

    results.start()
    assert launched.get(timeout=PATIENCE) == 6
    assert [len(project.runs(one)) for one in (*launched.parent.results, launched)] == [1, 1, 1]


@pytest.mark.parametrize("broker_conf", ["rabbitmq"], indirect=True)
def test_a_canvas_whose_worker_is_killed_while_it_launches_is_launched_by_another(
    project, launched, results, start_worker
):
    results.pause()
    first = start_worker(TASKS, "-P", "prefork", "-c", "1", env=project.env)
    first.wait_log(rf"Task celery_delayq.launch\[{launched.id}\] received")
    eventually(lambda: project.delayq.get(launched.id) is None)  # the scanner has acknowledged it
    first.kill()
    results.resume()

    start_worker(TASKS, "-P", "threads", "-c", "2", env=project.env)

    assert launched.get(timeout=PATIENCE) == 6


def refused(project, result):
    task = project.delayq.get(result.id)
    return task if task and task.next_try else None
