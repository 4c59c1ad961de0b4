"""`delayq_once` in real workers, between a real broker and the store: each task runs once.

Duplicates arise as in production: leases run out, and each scanner publishes its tasks, early or
late.
"""

import pytest

from tests.support.copies import attempts_at, publish
from tests.support.waiting import eventually
from tests.worker.project import TASKS

pytestmark = pytest.mark.libraries

ALONE = "--no-delayq"  # only the test's own messages arrive


@pytest.fixture(scope="module")
def project(standing, server, broker):
    return standing(
        *("-P", "prefork", "-c", "2", ALONE),
        broker_url=broker.url,
        delayq_url=server.url(),
        delayq_once=True,
        delayq_capture_eta=True,
    )


def wait_dropped(project, result, attempt, first, worker=None):
    (worker or project.worker).wait_log(
        f"task {result.id}: attempt {attempt} is dropped, as attempt {first} reached a worker first"
    )


def stored(project, result):
    return project.server.client(db=1).get(f"celery-task-meta-{result.id}")


def test_of_two_copies_the_one_that_comes_first_runs(project):
    result = project.tasks["add"].delay_for(0, 1, 2)
    first, second = attempts_at(project.delayq, result.id, 2)

    publish(project.delayq, second)
    assert result.get(timeout=30) == 3
    kept = stored(project, result)
    publish(project.delayq, first)

    wait_dropped(project, result, 1, 2)
    assert [run["attempt"] for run in project.runs(result)] == [2]
    assert stored(project, result) == kept


@pytest.fixture
def make_relayed(make_project, server, broker):
    """Make a project for this test alone; its tasks go to that broker."""
    return lambda **conf: make_project(
        **{"broker_url": broker.url, "delayq_url": server.url(), "delayq_once": True, **conf}
    )


# Broker and pool are independent, so not every pair is tested.
@pytest.mark.parametrize(
    ("broker", "pool", "late"),
    [
        ("rabbitmq", "solo", True),
        ("rabbitmq", "prefork", False),
        ("redis", "solo", True),
        ("redis", "threads", False),
    ],
    indirect=["broker"],
)
def test_a_dropped_copy_is_acknowledged(make_relayed, start_worker, pool, late):
    project = make_relayed(task_acks_late=late)
    worker = start_worker(TASKS, "-P", pool, "-c", "1", ALONE, env=project.env)
    result = project.tasks["note"].delay_for(0)
    copies = attempts_at(project.delayq, result.id, 2)

    publish(project.delayq, *copies)
    project.wait_runs(result)
    wait_dropped(project, result, 2, 1, worker)
    assert worker.stop() == 0

    with project.app.connection_for_read() as connection:
        queue = project.app.amqp.queues[project.queue].bind(connection.default_channel)
        assert queue.get() is None
        client = getattr(connection.default_channel, "client", None)
        # Other tests share this Redis, and may have killed a worker with an open message.
        held = client.hvals("unacked") if client else ()
        assert not [one for one in held if result.id.encode() in one]
    assert len(project.runs(result)) == 1


def test_a_task_of_a_killed_worker_runs_again_and_its_second_copy_does_not(
    make_relayed, start_worker, broker
):
    """The first copy may be the only one; the broker delivers it to the next worker."""
    project = make_relayed()
    first = start_worker(TASKS, "-P", "solo", ALONE, env=project.env)
    result = project.tasks["hold"].delay_for(0, 60)
    copies = attempts_at(project.delayq, result.id, 2)
    publish(project.delayq, copies[0])
    project.wait_runs(result)
    first.kill()
    broker.end_visibility()
    publish(project.delayq, copies[1])

    second = start_worker(TASKS, "-P", "solo", ALONE, env=project.env)
    project.wait_runs(result, 2, timeout=40)
    project.let_go(result)

    runs = project.wait_runs(result, 3, timeout=40)
    wait_dropped(project, result, 2, 1, second)
    assert [(run["attempt"], run["after"]) for run in runs] == [(1, False), (1, False), (1, True)]


def test_a_retry_is_a_hand_over_of_its_own(project):
    """Its first attempt does not count as a duplicate of the run that scheduled it."""
    result = project.tasks["persist"].delay_for(0, 1, 3600)
    copies = attempts_at(project.delayq, result.id, 2)
    publish(project.delayq, copies[1])
    eventually(lambda: project.delayq.reschedule(result.id, after=0))
    [retry] = attempts_at(project.delayq, result.id, 1)

    publish(project.delayq, retry, copies[0])

    wait_dropped(project, result, 1, 2)
    assert result.get(timeout=30) == 1
    assert [(run["attempt"], run["retries"]) for run in project.runs(result)] == [(2, 0), (1, 1)]
