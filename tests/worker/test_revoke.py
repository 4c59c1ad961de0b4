"""`celery control revoke` on the command line, through a worker, reaches the store."""

import os
import subprocess
import sys

import pytest

from celery_delayq import Outcome
from tests.support.worker import ROOT
from tests.worker.project import TASKS

pytestmark = pytest.mark.libraries


def celery(project, *arguments):
    return subprocess.run(
        [sys.executable, "-m", "celery", "-A", TASKS, *arguments],
        env={**os.environ, **project.env},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_revoke_on_the_command_line_cancels_a_scheduled_task(crew):
    result, other = crew.tasks["note"].delay_for(3600), crew.tasks["note"].delay_for(3600)
    done = celery(crew, "control", "-d", crew.worker.name, "revoke", result.id)
    assert done.returncode == 0, done.stderr
    assert "cancelled before they were due" in done.stdout
    assert crew.delayq.get(result.id) is None
    assert crew.delayq.get(other.id)
    assert result.state == "REVOKED"
    # The worker does not remember the id as one to be dropped.
    again = crew.tasks["note"].apply_async(task_id=result.id, delayq_after=0)
    crew.wait_runs(again)


def test_terminate_on_the_command_line_cancels_a_scheduled_task(crew):
    result = crew.tasks["note"].delay_for(3600)
    done = celery(crew, "control", "-d", crew.worker.name, "terminate", "SIGTERM", result.id)
    assert done.returncode == 0, done.stderr
    assert "cancelled before they were due" in done.stdout
    assert crew.delayq.get(result.id) is None
    again = crew.tasks["note"].apply_async(task_id=result.id, delayq_after=0)
    crew.wait_runs(again)


def test_what_is_scheduled_under_an_id_after_its_revoke_runs(crew):
    first = crew.tasks["note"].delay_for(0)
    crew.wait_runs(first)
    assert crew.delayq.cancel(first.id, revoke=True) is Outcome.HANDED_OVER
    crew.tasks["note"].apply_async(task_id=first.id, delayq_after=0)
    crew.wait_runs(first, 2)

    crew.app.control.revoke(first.id)
    crew.tasks["note"].apply_async(task_id=first.id, delayq_after=0)
    crew.wait_runs(first, 3)

    done = celery(crew, "control", "-d", crew.worker.name, "revoke", first.id)
    assert "flagged as revoked" in done.stdout
    crew.tasks["note"].apply_async(task_id=first.id, delayq_after=0)
    crew.wait_runs(first, 4)


def test_revoke_by_the_app_cancels_with_every_worker_offline(make_project):
    project = make_project()
    result = project.tasks["note"].delay_for(3600)
    project.app.control.revoke(result.id)
    assert project.delayq.get(result.id) is None
    assert result.state == "REVOKED"
