"""Tasks that run again, by `self.retry`, and tasks that schedule tasks.

The `eta` of a retry is left to Celery, or captured, also beside RabbitMQ.
"""

import itertools
from datetime import datetime

import pytest
from celery.utils import uuid

from tests.support.waiting import eventually
from tests.worker.conftest import each_of
from tests.worker.project import TASKS

pytestmark = pytest.mark.libraries

project = each_of("crew", "capturing", "rabbit")
captured = each_of("capturing", "rabbit")


def test_a_retry_runs_once_per_attempt_and_not_early(project):
    result = project.tasks["persist"].delay_for(0.1, 2, 0.3)
    runs = project.wait_runs(result, 3)
    assert [run["retries"] for run in runs] == [0, 1, 2]
    assert all(b["at"] - a["at"] >= 0.3 for a, b in itertools.pairwise(runs))
    assert result.get(timeout=30) == 2
    assert len(project.runs(result)) == 3


def test_a_retry_at_once_is_no_conflict_although_it_overtakes_the_scanner_s_ack(project):
    results = [project.tasks["persist"].delay_for(0, 3, 0) for _ in range(10)]
    for result in results:
        assert result.get(timeout=30) == 3
        assert [run["retries"] for run in project.runs(result)] == [0, 1, 2, 3]
    # A task may have run before the scanner acknowledges it.
    eventually(lambda: [project.delayq.get(result.id) for result in results] == [None] * 10)


def test_a_captured_retry_has_a_due_time_and_an_attempt_of_its_own(captured):
    result = captured.tasks["persist"].delay_for(0.1, 1, 0.3)
    first, second = captured.wait_runs(result, 2)
    assert first["due"] == pytest.approx(result.due.timestamp(), abs=0.0001)
    assert 0.25 < second["due"] - first["at"] < 60
    assert datetime.fromisoformat(second["eta"]).timestamp() == second["due"]
    assert {run["attempt"] or 1 for run in (first, second)} == {1}
    assert {run["redelivered"] for run in (first, second)} == {None}


# Inside tasks.


def ids(count):
    return [uuid() for _ in range(count)]


@pytest.mark.parametrize("delay", [0, 0.2])
def test_a_task_schedules_itself_again_under_its_own_id(project, delay):
    result = project.tasks["again"].delay_for(0, 3, delay)
    runs = project.wait_runs(result, 4)
    assert [run["left"] for run in runs] == [3, 2, 1, 0]
    assert all(run["at"] >= run["due"] for run in runs)
    assert all(b["due"] - a["due"] >= delay for a, b in itertools.pairwise(runs))
    assert len(project.runs(result)) == 4


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
