"""Which ways add the scanner to a worker, and which do not."""

import pytest
from celery import Celery

from tests.support.waiting import eventually
from tests.worker.project import TASKS

pytestmark = pytest.mark.libraries


def test_a_worker_without_delayq_scans_nothing_and_still_runs_tasks(make_project, start_worker):
    project = make_project()
    worker = start_worker(TASKS, "--no-delayq", "-P", "solo", env=project.env)
    held = project.tasks["note"].delay_for(0)
    project.wait_runs(project.tasks["note"].delay())
    assert project.scanners() == 0
    assert project.runs(held) == []
    assert not any("started: " in line for line in worker.lines)
    # Another worker scans the tasks that it leaves.
    start_worker(TASKS, "-P", "solo", env=project.env)
    project.wait_runs(held)


@pytest.mark.parametrize("module", ["tests.worker.by_hand", "tests.worker.both"])
def test_a_step_added_twice_starts_one_scanner(make_project, start_worker, module):
    project = make_project()
    worker = start_worker(module, "-P", "solo", env=project.env)
    result = project.tasks["note"].delay_for(0.1)
    worker.wait_log(rf"note\[{result.id}\].*succeeded")
    eventually(lambda: project.scanners() == 1)
    assert sum("scanner" in line and "started" in line for line in worker.lines) == 1


def test_two_workers_have_two_scanners(make_project, start_worker):
    project = make_project()
    for _ in range(2):
        start_worker(TASKS, "-P", "solo", env=project.env)
    eventually(lambda: project.scanners() == 2)


def test_a_worker_schedules_what_an_app_without_a_delayq_sent_at_once(make_project, start_worker):
    project = make_project()
    worker = start_worker(TASKS, "-P", "solo", env=project.env)
    conf = {name: value for name, value in project.conf.items() if "delayq" not in name}
    with Celery("stranger", set_as_current=False) as stranger:
        stranger.conf.update(conf)
        result = stranger.send_task("note", delayq_after=0.3)
    [run] = project.wait_runs(result)
    assert run["at"] >= run["due"]
    worker.wait_log(rf"task {result.id}: scheduled on arrival; .* create DelayQ\(app\) there")
