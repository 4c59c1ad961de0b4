"""Keys, with workers: which task runs, how often, and the results of the others."""

import pytest
from celery import states
from celery.exceptions import TaskRevokedError

from tests.support.waiting import eventually
from tests.worker.conftest import each_of

pytestmark = [pytest.mark.core, pytest.mark.libraries]


project = each_of("crew", "rabbit")


def test_ten_calls_within_the_window_are_one_run_of_the_last(project):
    note, window = project.tasks["note"], {"after": 3600, "key": "window", "conflict": "debounce"}
    *others, last = [project.delayq.schedule(note.s(number), **window) for number in range(10)]
    assert project.delayq.run_now(last)

    assert last.get(timeout=30) == [9]
    assert [run["args"] for run in project.runs(last)] == [[9]]
    for result in others:
        with pytest.raises(TaskRevokedError, match="replaced by"):
            result.get(timeout=30)
        assert project.runs(result) == []


@pytest.mark.parametrize("conflict", ["reject", "keep", "replace", "debounce"])
def test_a_retry_takes_a_key_that_is_free(capturing, conflict):
    key = f"free {conflict}"
    result = capturing.delayq.schedule(capturing.tasks["insist"].s(key, conflict), after=0, key=key)

    assert result.get(timeout=30) == 1


def test_a_retry_that_replaces_another_task_runs(capturing):
    other = capturing.delayq.schedule(capturing.tasks["note"].s(), after=3600, key="mine")

    result = capturing.tasks["insist"].delay_for(0, "mine", "replace")

    assert result.get(timeout=30) == 1
    # The first run stores it once it has scheduled the second one, which may end before that.
    eventually(lambda: other.state == states.REVOKED)


@pytest.mark.operations
def test_a_retry_that_gives_way_is_revoked(capturing):
    other = capturing.delayq.schedule(capturing.tasks["note"].s(), after=3600, key="other's")

    result = capturing.tasks["insist"].delay_for(0, "other's", "keep")

    with pytest.raises(TaskRevokedError, match="kept"):
        result.get(timeout=30)
    assert len(capturing.runs(result)) == 1
    assert other.cancel()


def test_the_child_of_a_task_is_the_task_that_was_kept(crew):
    holder = crew.delayq.schedule(crew.tasks["note"].s(), after=3600, key="child")

    parent = crew.tasks["share"].delay_for(0, "child")

    assert parent.get(timeout=30) == holder.id
    assert [child.id for child in parent.children] == [holder.id]
    assert holder.cancel()
