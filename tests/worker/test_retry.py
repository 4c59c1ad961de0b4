"""`self.retry` and `autoretry_for`, with `eta` left to Celery and with `eta` captured."""

import itertools
from datetime import datetime

import pytest

from tests.support.waiting import eventually

pytestmark = pytest.mark.libraries


@pytest.fixture(params=["crew", "capturing"])
def project(request):
    return request.getfixturevalue(request.param)


def test_a_retry_runs_once_per_attempt_and_not_early(project):
    result = project.tasks["persist"].delay_for(0.1, 2, 0.3)
    runs = project.wait_runs(result, 3)
    assert [run["retries"] for run in runs] == [0, 1, 2]
    assert all(b["at"] - a["at"] >= 0.3 for a, b in itertools.pairwise(runs))
    assert result.get(timeout=30) == 2
    assert len(project.runs(result)) == 3


def test_an_automatic_retry_runs_once_per_attempt(project):
    result = project.tasks["stumble"].delay_for(0.1, 2)
    assert result.get(timeout=30) == 2
    assert [run["retries"] for run in project.runs(result)] == [0, 1, 2]


def test_a_retry_at_once_is_no_conflict(project):
    result = project.tasks["persist"].delay_for(0, 3, 0)
    assert result.get(timeout=30) == 3
    assert len(project.runs(result)) == 4


def test_a_captured_retry_has_a_due_time_of_its_own(capturing):
    result = capturing.tasks["persist"].delay_for(0.1, 1, 0.3)
    first, second = capturing.wait_runs(result, 2)
    assert first["due"] == pytest.approx(result.due.timestamp(), abs=0.0001)
    assert 0.25 < second["due"] - first["at"] < 60
    assert datetime.fromisoformat(second["eta"]).timestamp() == second["due"]


def test_a_retry_that_is_left_to_celery_has_no_due_time(crew):
    _, second = crew.wait_runs(crew.tasks["persist"].delay_for(0.1, 1, 0.3), 2)
    assert second["due"] is None


def test_a_captured_retry_waits_in_the_store_and_can_be_cancelled(capturing):
    result = capturing.tasks["persist"].delay_for(0, 1, 3600)
    capturing.wait_runs(result)
    eventually(lambda: capturing.delayq.get(result.id))
    assert capturing.delayq.cancel(result.id)
    assert capturing.delayq.get(result.id) is None


def test_a_captured_retry_can_be_brought_forward(capturing):
    result = capturing.tasks["persist"].delay_for(0, 1, 3600)
    capturing.wait_runs(result)
    eventually(lambda: capturing.delayq.get(result.id))
    assert capturing.delayq.reschedule(result.id, after=0)
    assert capturing.wait_runs(result, 2)[1]["retries"] == 1


def test_a_plain_countdown_is_captured(capturing):
    held = capturing.tasks["note"].apply_async(countdown=3600)
    assert capturing.delayq.cancel(held.id)
    result = capturing.tasks["note"].apply_async(countdown=0.3)
    [run] = capturing.wait_runs(result)
    assert run["due"] is not None
    assert datetime.fromisoformat(run["eta"]).timestamp() == run["due"]


def test_without_capture_a_task_has_no_eta(crew):
    [run] = crew.wait_runs(crew.tasks["note"].delay_for(0))
    assert run["eta"] is None
