"""A project moves from `eta` by the steps of the recipe, with tasks in flight."""

import json
from datetime import datetime, timedelta, timezone

import pytest
from celery import Celery

from tests.support.waiting import eventually

pytestmark = pytest.mark.libraries

FAR = timedelta(hours=1)


@pytest.fixture(params=["redis", "rabbitmq"])
def project(request, make_project):
    if request.param == "redis":
        return make_project(delayq_adopt_after=60)
    rabbitmq = request.getfixturevalue("rabbitmq_server")
    url = request.getfixturevalue("server").url()
    return make_project(broker_url=rabbitmq.url, delayq_url=url, delayq_adopt_after=60)


@pytest.fixture
def before(project):
    """The project's environment before it installed this package."""
    conf = {name: value for name, value in project.conf.items() if "delayq" not in name}
    return {**project.env, "DELAYQ_TEST_CONF": json.dumps(conf)}


def send(project, count):
    due = datetime.now(timezone.utc) + FAR
    with Celery("before", broker=project.conf["broker_url"], set_as_current=False) as app:
        app.conf.task_default_queue = project.queue
        return [app.send_task("note", (number,), eta=due).id for number in range(count)]


def in_queue(project):
    if project.conf["broker_url"].startswith("redis"):
        return project.queued()
    with project.app.connection_for_read() as connection:
        return connection.default_channel.queue_declare(project.queue, passive=True).message_count


def held(project, ids):
    return all(project.delayq.get(one) for one in ids)


def test_a_new_worker_adopts_the_tasks_that_an_old_one_held(project, before, start_worker):
    old = start_worker("tests.worker.plain", "-P", "solo", env=before, plain=True)
    ids = send(project, 3)
    eventually(lambda: in_queue(project) == 0)

    assert old.stop() == 0  # SIGTERM: the tasks it held go back to their queue
    eventually(lambda: in_queue(project) == 3)
    start_worker("tests.worker.tasks", "-P", "solo", env=project.env)

    eventually(lambda: held(project, ids))
    assert project.delayq.select(all=True).run_now() == 3
    for one in ids:
        assert len(project.wait_runs(one)) == 1


def test_an_old_worker_beside_a_new_one_holds_what_it_gets(project, before, start_worker):
    start_worker("tests.worker.plain", "-P", "solo", env=before, plain=True)
    ids = send(project, 3)
    eventually(lambda: in_queue(project) == 0)

    start_worker("tests.worker.tasks", "-P", "solo", env=project.env)

    assert not any(project.delayq.get(one) for one in ids)
