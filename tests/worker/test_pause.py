"""Pauses and late policies, with workers."""

import pytest
from celery.exceptions import TaskRevokedError

from celery_delayq import State
from tests.support.waiting import eventually

pytestmark = pytest.mark.libraries


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
