"""Scheduling always returns one class, combined with any of Celery's result classes."""

import pytest
from celery import group
from celery.result import GroupResult

from celery_delayq.core.integration.results import scheduled
from tests.app.conftest import app_with_results as app
from tests.app.support import LONG_AGO

__all__ = ["app"]

pytestmark = pytest.mark.libraries


def stored(app, task_id, state):
    """A result whose task ended in this way."""
    app.backend.store_result(task_id, 1 if state == "SUCCESS" else ValueError(), state)
    return app.AsyncResult(task_id)


def test_a_group_is_pending_until_its_tasks_have_ended(app, add, delayq):
    result = group(add.s(1), add.s(2)).delay_until(LONG_AGO)
    delayq.hand_over()
    assert result.state == "PENDING"

    for ended, state in zip(result.results, ("PENDING", "SUCCESS"), strict=True):
        app.backend.store_result(ended.id, 1, "SUCCESS")
        assert result.state == state


@pytest.mark.parametrize("state", ["FAILURE", "REVOKED"])
def test_a_group_is_what_ended_badly_in_it(app, delayq, state):
    parts = [stored(app, "a", "SUCCESS"), stored(app, "b", state), app.AsyncResult("c")]

    assert scheduled(GroupResult("g", parts), delayq.services, 0).state == state


def test_a_group_of_groups_is_what_all_of_their_tasks_are(app, delayq):
    inner = GroupResult("i", [stored(app, "a", "SUCCESS")])
    result = scheduled(GroupResult("g", [inner, stored(app, "b", "SUCCESS")]), delayq.services, 0)
    assert result.state == "SUCCESS"

    inner.results.append(app.AsyncResult("c"))
    assert result.state == "PENDING"
