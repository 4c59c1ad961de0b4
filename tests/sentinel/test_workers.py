"""Real workers whose broker, or whose store, is a group, while its master fails."""

import time

import pytest

from tests.sentinel.faults import failover, kill
from tests.sentinel.work import schedule_row
from tests.support.apps import celery_state_kept
from tests.support.waiting import PATIENCE, eventually
from tests.worker.project import TASKS, Project

EVERY = 0.03  # seconds between two due times
A_LITTLE = 1.0  # seconds that a delivery and a run may be late on a busy machine
ALLOWED = 4  # messages that this worker may have taken: Celery's prefetch for one process


@pytest.fixture
def make_project(redis_server, redis_url):
    """Make a project on a group; its tasks write their evidence to the suite's Redis."""
    made = []

    def make(group, place, **conf):
        here = {
            "broker_url": group.url(),
            "broker_transport_options": {**group.options, "socket_timeout": PATIENCE},
            "result_backend": redis_server.url(1),
            "task_publish_retry": False,
            "delayq_timeout": PATIENCE,
            "broker_connection_retry_on_startup": True,
        }
        made.append(Project(redis_server, **{**here, **place(group, redis_url), **conf}))
        made[-1].delayq.note = made[-1].tasks["note"]
        return made[-1]

    with celery_state_kept():
        yield make
        for project in made:
            project.close()


def direct(group, _redis_url) -> dict:
    return {}


def as_broker(_group, redis_url) -> dict:
    return {"delayq_url": redis_url}


@pytest.mark.parametrize(
    ("place", "fault"),
    [(direct, kill), (direct, failover), (as_broker, kill)],
)
def test_a_worker_goes_on_at_the_new_master_and_runs_all(
    start_group, make_project, start_worker, place, fault
):
    group = start_group()
    project = make_project(group, place, delayq_lease=5.0)
    worker = start_worker(TASKS, "-P", "solo", env=project.env)
    first_due = time.monotonic() + 0.5
    row = schedule_row(project.delayq, 100, first=0.5, every=EVERY)
    project.wait_runs(row[5])
    done = lambda: {task_id for task_id in row if project.runs(task_id)}  # noqa: E731
    # They ran, and no delivery of them is under way. The replica has that before the fault.
    settled = {task_id for task_id in done() if project.delayq.get(task_id) is None}

    course = fault(group)
    if course.lingers:
        course.await_demotion()  # this closes kombu's link for consuming

    around = {
        task_id
        for number, task_id in enumerate(row)
        if first_due + number * EVERY < course.gone + A_LITTLE
    } - settled
    # A broker takes along what its replica had not got yet. A store still has it as tasks.
    excused = around if place is as_broker else set()
    lost = lambda: set(row) - done()  # noqa: E731
    eventually(lambda: lost() <= around and len(lost() - excused) <= ALLOWED)
    afterwards = [project.tasks["note"].delay_for(0.1) for _ in range(3)]
    for result in afterwards:
        project.wait_runs(result)
    runs = {task_id: len(project.runs(task_id)) for task_id in row}
    # Messages that kombu took from the old master, or that its replica had not got yet.
    assert lost() <= around
    assert {task_id for task_id, count in runs.items() if count > 1} <= around
    assert all(len(project.runs(result)) == 1 for result in afterwards)
    assert own_tracebacks(worker.lines) == []
    assert worker.stop() == 0


def own_tracebacks(lines: list[str]) -> list[str]:
    """Traceback lines from this package; kombu logs some of its own."""
    return [line for line in lines if line.startswith('  File "') and "/celery_delayq/" in line]
