"""Waiting tasks after Celery's `purge`, or after the deletion of a queue or a database."""

import pytest

from tests.support.forked import run_forked
from tests.support.waiting import eventually
from tests.support.worker import ROOT

pytestmark = pytest.mark.libraries


@pytest.fixture(params=["redis", "rabbitmq"])
def project(request, make_project):
    """A project whose broker is the store's Redis, or a RabbitMQ."""
    if request.param == "redis":
        return make_project()
    rabbitmq = request.getfixturevalue("rabbitmq_server")
    url = request.getfixturevalue("server").url()
    return make_project(broker_url=rabbitmq.url, delayq_url=url)


def in_queue(project):
    if project.conf["broker_url"].startswith("redis"):
        return project.queued()
    with project.app.connection_for_read() as connection:
        return connection.default_channel.queue_declare(project.queue, passive=True).message_count


def fill(project):
    """Put two tasks into the queue, and schedule three."""
    note = project.tasks["note"]
    for number in range(2):
        note.delay(number)
    eventually(lambda: in_queue(project) == 2)
    return [note.delay_for(3600, number) for number in range(3)]


def celery(project, *arguments):
    ran = run_forked(
        "-m", "celery", "-A", "tests.worker.tasks", *arguments, env=project.env, cwd=ROOT
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def purge_command(project):
    assert "Purged 2 messages" in celery(project, "purge", "-f")


def purge_by_control(project):
    assert project.app.control.purge() == 2


def delete_queue(project):
    with project.app.connection_for_write() as connection:
        connection.default_channel.queue_delete(project.queue)


def test_waiting_tasks_stay_and_run_when_they_are_due(project, start_worker):
    waiting = []
    for way in (purge_command, purge_by_control, delete_queue):
        waiting += fill(project)

        way(project)

        assert project.delayq.counts().scheduled == len(waiting), way
    worker = start_worker("tests.worker.tasks", "-P", "solo", env=project.env)
    project.delayq.select(all=True).run_now()
    for result in waiting:
        assert len(project.wait_runs(result)) == 1
    assert worker.running


def test_a_cancel_of_all_leaves_the_queue_as_it_is(project):
    fill(project)

    said = celery(project, "delayq", "cancel", "--all", "--yes")

    assert "3 tasks cancelled" in said
    assert project.delayq.counts().scheduled == 0
    assert in_queue(project) == 2


def test_a_flushed_database_has_lost_its_tasks_and_takes_new_ones(
    make_project, start_redis, start_worker
):
    project = make_project(start_redis())
    worker = start_worker("tests.worker.tasks", "-P", "solo", env=project.env)
    lost = project.tasks["note"].delay_for(3600)
    eventually(lambda: project.scanners() == 1)

    project.client.flushdb()

    assert project.delayq.get(lost.id) is None
    assert len(project.wait_runs(project.tasks["note"].delay_for(0))) == 1
    assert worker.running
