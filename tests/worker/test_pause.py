"""Pauses and late policies, with workers."""

import pytest
from celery.exceptions import TaskRevokedError

from celery_delayq import State
from tests.support.waiting import eventually
from tests.support.worker import WorkerProcess
from tests.worker.project import TASKS, Project

pytestmark = pytest.mark.libraries

RATE, TASKS_DUE = 20, 60


def test_a_task_that_is_too_late_does_not_run_and_its_caller_gets_an_error(crew):
    crew.delayq.pause(queue=crew.queue, late=True)
    try:
        held = crew.delayq.schedule(crew.tasks["note"].s(), after=0, late="skip", grace=0)
        eventually(lambda: crew.delayq.state(held.id) is State.PAUSED)
    finally:
        crew.delayq.resume(queue=crew.queue)

    with pytest.raises(TaskRevokedError, match=r"skipped: \d+ s late"):
        held.get(timeout=30)
    assert crew.runs(held) == []


@pytest.fixture
def alone(server):
    """A project without a worker."""
    project = Project(server)
    yield project
    project.close()


@pytest.mark.parametrize("options", [{}, {"late": "skip", "grace": 0.5}], ids=["", "skip"])
def test_tasks_that_fell_due_without_a_worker_run_in_order_at_the_rate(alone, tmp_path, options):
    """The steps of the recipe "Restoring a backup": pause, start the workers, resume at a rate."""
    delayq, note = alone.delayq, alone.tasks["note"]
    delayq.pause(all=True)
    held = [delayq.schedule(note.s(n), after=0, **options) for n in range(TASKS_DUE)]
    eventually(lambda: delayq.counts().paused == TASKS_DUE)
    due = delayq.get(held[-1]).due
    # The pause is longer than the grace.
    eventually(lambda: delayq.counts().now_ms > due.timestamp() * 1000 + 600)
    worker = WorkerProcess(TASKS, env=alone.env, log=tmp_path / "worker.log")
    try:
        delayq.resume(all=True, rate=RATE)
        alone.wait_runs(held[-1], timeout=60)
    finally:
        worker.kill()

    left = [delayq.handed_over(result).timestamp() for result in held]
    assert left == sorted(left)
    # At the start it makes up for at most one second without a scan.
    assert left[-1] - left[0] >= (TASKS_DUE - RATE) / RATE - 0.2
