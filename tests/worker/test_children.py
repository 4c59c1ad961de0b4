"""Scheduling from inside tasks, in the children of a prefork pool."""

import pytest
from celery.utils import uuid

from tests.support.waiting import eventually
from tests.worker.project import TASKS

pytestmark = pytest.mark.libraries


def ids(count):
    return [uuid() for _ in range(count)]


def test_a_task_schedules_others(crew):
    wanted = ids(5)
    crew.tasks["spawn"].delay_for(0, wanted, 0.2)
    for task_id in wanted:
        [run] = crew.wait_runs(task_id)
        assert run["at"] >= run["due"]


def test_a_task_schedules_itself_again_under_its_own_id(crew):
    result = crew.tasks["again"].delay_for(0, 3, 0.2)
    runs = crew.wait_runs(result, 4)
    assert [run["left"] for run in runs] == [3, 2, 1, 0]
    assert all(run["at"] >= run["due"] for run in runs)
    assert len({run["due"] for run in runs}) == 4
    assert len(crew.runs(result)) == 4


def test_children_that_come_and_go_schedule_safely(make_project, start_worker):
    project = make_project()
    worker = start_worker(
        TASKS, "-P", "prefork", "-c", "2", "--max-tasks-per-child", "1", env=project.env
    )
    wanted = [ids(2), ids(2)]
    spawned = [project.tasks["spawn"].delay_for(0, some, 0.1) for some in wanted]
    noted = [run for some in wanted for one in some for run in project.wait_runs(one)]
    children = {run["pid"] for run in noted} | {
        run["pid"] for one in spawned for run in project.runs(one)
    }
    assert len(noted) == 4
    assert len(children) == 6, "each child was a new process"
    assert worker.pid not in children
    eventually(lambda: project.scanners() == 1)
