"""A task is read and edited by its unique key as by its id."""

import pytest

from celery_delayq import Outcome, State
from tests.app.support import FAR, LONG_AGO

pytestmark = pytest.mark.core


@pytest.mark.operations
def test_a_waiting_task_is_read_and_edited_by_its_key(add, delayq):
    delayq.schedule(add.s(9), at=FAR, key="other")
    first = delayq.schedule(add.s(1), at=FAR, key="k")

    assert delayq.get(key="k") == delayq.get(first)
    assert delayq.state(key="k") is State.SCHEDULED
    result = delayq.result(key="k")
    assert (result, result.due) == (first, first.due)
    revision = delayq.get(key="k").revision
    assert delayq.edit(key="k", args=[5], if_revision=revision) is Outcome.DONE
    assert delayq.edit(key="k", args=[6], if_revision=revision) is Outcome.UNCHANGED
    assert delayq.get(first).args == (5,)
    assert delayq.edit(key="k", args=["x" * 9000]), "it has its key still"
    assert delayq.cancel(key="k")


@pytest.mark.operations
def test_the_last_task_under_a_key_is_known_to_have_been_delivered(add, delayq):
    first = delayq.schedule(add.s(1), at=LONG_AGO, key="k")
    assert delayq.handed_over(key="k") is None
    delayq.hand_over()

    assert delayq.handed_over(key="k") == delayq.handed_over(first) is not None
    assert delayq.edit(key="k", args=[5]) is Outcome.HANDED_OVER
    for unknown in (delayq.get, delayq.result, delayq.state):
        assert unknown(key="k") is None
    assert delayq.edit(key="none", args=[5]) is Outcome.NOT_FOUND
