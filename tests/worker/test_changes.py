"""Tasks that are edited, revoked, brought back, purged or too late while they wait."""

import pytest
from celery.exceptions import TaskRevokedError

from celery_delayq import Outcome, State
from tests.support.waiting import eventually
from tests.worker.conftest import each_of
from tests.worker.project import TASKS
from tests.worker.support import WITHIN, celery

pytestmark = pytest.mark.libraries

edited = each_of("crew", "rabbit")


def test_a_worker_sees_the_edited_arguments(edited):
    result = edited.tasks["add"].delay_for(3600, 1, 2)

    assert result.edit(args=(5,), kwargs={"y": 6})
    assert result.reschedule(after=0)

    assert result.get(timeout=30) == 11


# Revoked.


def revoke_on_the_command_line(project, result, *command):
    done = celery(project, "control", *WITHIN, "-d", project.worker.name, *command, result.id)
    assert done.returncode == 0, done.stderr
    assert "cancelled before they were due" in done.stdout


@pytest.mark.parametrize("command", [("revoke",), ("terminate", "SIGTERM")], ids=" ".join)
def test_a_revoke_on_the_command_line_cancels_a_task_whose_id_may_be_used_again(crew, command):
    result, other = crew.tasks["note"].delay_for(3600), crew.tasks["note"].delay_for(3600)

    revoke_on_the_command_line(crew, result, *command)

    assert crew.delayq.get(result.id) is None
    assert crew.delayq.get(other.id)
    assert result.state == "REVOKED"
    # The worker does not keep the id in its list of revoked ones.
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


# Brought back by an undo.


@pytest.fixture
def undoing(make_project, start_worker):
    project = make_project(delayq_undo=[3600, 100])
    project.worker = start_worker(TASKS, "-P", "prefork", "-c", "1", env=project.env)
    return project


def test_a_revoked_task_that_an_undo_brought_back_runs_once_and_has_its_own_result(undoing):
    result = undoing.tasks["note"].delay_for(3600)
    eventually(lambda: undoing.app.control.ping([undoing.worker.name], timeout=2))
    revoke_on_the_command_line(undoing, result, "revoke")
    assert undoing.app.AsyncResult(result.id).state == "REVOKED"

    undoing.delayq.undo(result.id)
    assert undoing.app.AsyncResult(result.id).state == "SCHEDULED"
    undoing.delayq.run_now(result.id)

    undoing.wait_runs(result)
    eventually(lambda: undoing.app.AsyncResult(result.id).state == "SUCCESS")
    assert len(undoing.runs(result)) == 1


# Beside a purge of their queue.


@pytest.fixture
def project(make_project, broker_conf):
    return make_project(**broker_conf)


def fill(project):
    """Put two tasks into the queue, and schedule three."""
    note = project.tasks["note"]
    for number in range(2):
        note.delay(number)
    eventually(lambda: project.queued() == 2)
    return [note.delay_for(3600, number) for number in range(3)]


def purge_command(project):
    assert "Purged 2 messages" in celery(project, "purge", "-f").stdout


def purge_by_control(project):
    assert project.app.control.purge() == 2


def delete_queue(project):
    with project.app.connection_for_write() as connection:
        connection.default_channel.queue_delete(project.queue)


def test_waiting_tasks_outlive_a_purge_of_their_queue_and_run_when_they_are_due(
    project, start_worker
):
    waiting = []
    for way in (purge_command, purge_by_control, delete_queue):
        waiting += fill(project)

        way(project)

        assert project.delayq.counts().scheduled == len(waiting), way
    worker = start_worker(TASKS, "-P", "solo", env=project.env)
    project.delayq.select(all=True).run_now()
    for result in waiting:
        assert len(project.wait_runs(result)) == 1
    assert worker.running


# Too late.


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
