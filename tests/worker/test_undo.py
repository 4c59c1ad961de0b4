"""A task that was cancelled, in any way, runs once an undo has brought it back."""

import pytest

from tests.support.forked import run_forked
from tests.support.waiting import PATIENCE, eventually
from tests.support.worker import ROOT
from tests.worker.project import TASKS

pytestmark = pytest.mark.libraries


@pytest.fixture
def project(make_project, start_worker):
    project = make_project(delayq_undo=[3600, 100])
    project.worker = start_worker(TASKS, "-P", "prefork", "-c", "1", env=project.env)
    return project


def cancel(project, result):
    assert project.delayq.cancel(result.id)


def revoke(project, result):
    project.app.control.revoke(result.id)


def revoke_on_the_command_line(project, result):
    line = ("control", "-t", str(PATIENCE), "-d", project.worker.name, "revoke", result.id)
    done = run_forked("-m", "celery", "-A", TASKS, *line, env=project.env, cwd=ROOT)
    assert "cancelled before they were due" in done.stdout, done.stderr


@pytest.mark.parametrize("how", [cancel, revoke, revoke_on_the_command_line])
def test_it_runs_once_and_its_result_is_its_own(project, how):
    result = project.tasks["note"].delay_for(3600)
    eventually(lambda: project.app.control.ping([project.worker.name], timeout=2))
    how(project, result)
    assert project.app.AsyncResult(result.id).state == "REVOKED"

    project.delayq.undo(result.id)
    assert project.app.AsyncResult(result.id).state == "SCHEDULED"
    project.delayq.run_now(result.id)

    project.wait_runs(result)
    eventually(lambda: project.app.AsyncResult(result.id).state == "SUCCESS")
    assert len(project.runs(result)) == 1


def test_a_task_that_another_process_cancelled_in_a_bulk_runs(project):
    results = [project.tasks["note"].delay_for(3600) for _ in range(5)]
    line = ("delayq", "cancel", "--all", "--yes")
    said = run_forked("-m", "celery", "-A", TASKS, *line, env=project.env, cwd=ROOT).stdout
    name = said.partition("undo --bulk ")[2].split()[0]

    assert project.delayq.undo_all(name).done == 5

    project.delayq.select(all=True).run_now()
    for result in results:
        project.wait_runs(result)
    # A scanner that was to store REVOKED for them has not, or has taken it back.
    eventually(
        lambda: {project.app.AsyncResult(result.id).state for result in results} == {"SUCCESS"}
    )
