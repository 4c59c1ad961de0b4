"""`celery control revoke` on the command line, through a worker, reaches the store."""

import pytest

from celery_delayq import Outcome
from tests.support.forked import run_forked
from tests.support.waiting import PATIENCE, eventually
from tests.support.worker import ROOT
from tests.worker.project import TASKS

pytestmark = pytest.mark.libraries

WITHIN = ("-t", str(PATIENCE))  # it ends when the worker has replied


def celery(project, *arguments):
    return run_forked("-m", "celery", "-A", TASKS, *arguments, env=project.env, cwd=ROOT)


def test_revoke_on_the_command_line_cancels_a_scheduled_task(crew):
    result, other = crew.tasks["note"].delay_for(3600), crew.tasks["note"].delay_for(3600)
    done = celery(crew, "control", *WITHIN, "-d", crew.worker.name, "revoke", result.id)
    assert done.returncode == 0, done.stderr
    assert "cancelled before they were due" in done.stdout
    assert crew.delayq.get(result.id) is None
    assert crew.delayq.get(other.id)
    assert result.state == "REVOKED"
    # The worker does not keep the id in its list of revoked ones.
    again = crew.tasks["note"].apply_async(task_id=result.id, delayq_after=0)
    crew.wait_runs(again)


def test_terminate_on_the_command_line_cancels_a_scheduled_task(crew):
    result = crew.tasks["note"].delay_for(3600)
    line = ("-d", crew.worker.name, "terminate", "SIGTERM", result.id)
    done = celery(crew, "control", *WITHIN, *line)
    assert done.returncode == 0, done.stderr
    assert "cancelled before they were due" in done.stdout
    assert crew.delayq.get(result.id) is None
    again = crew.tasks["note"].apply_async(task_id=result.id, delayq_after=0)
    crew.wait_runs(again)


def test_an_id_that_a_worker_heard_of_is_dropped_as_by_celery(crew):
    first = crew.tasks["note"].delay_for(0)
    crew.wait_runs(first)
    assert crew.delayq.cancel(first.id, revoke=True) is Outcome.HANDED_OVER
    inspect = crew.app.control.inspect([crew.worker.name], timeout=5, limit=1)
    eventually(lambda: first.id in (inspect.revoked() or {}).get(crew.worker.name, ()))

    crew.tasks["note"].apply_async(task_id=first.id, delayq_after=0)

    crew.worker.wait_log(rf"Discarding revoked task: note\[{first.id}\]")
    assert len(crew.runs(first)) == 1


def test_revoke_by_the_app_cancels_with_every_worker_offline(make_project):
    project = make_project()
    result = project.tasks["note"].delay_for(3600)
    project.app.control.revoke(result.id)
    assert project.delayq.get(result.id) is None
    assert result.state == "REVOKED"
