"""Leaves of the package with several shards: the load of a dump, and remote control."""

import pytest
from celery import states
from celery.result import AsyncResult

from tests.app.test_dump import through_text
from tests.app.test_several_shards import app, many, task_id

__all__ = ["app", "many", "task_id"]


@pytest.mark.parametrize("shards", [1, 2, 3])
def test_a_dump_is_loaded_into_any_number_of_shards(delayq_app, url, delayq, many, shards):
    lines = through_text(delayq)
    other = delayq_app(url, delayq_shards=shards, delayq_prefix="other").delayq
    assert other.load(lines).loaded == 30
    assert other.load(lines).here == 30
    assert other.counts().scheduled == 30
    for number in range(0, 30, 3):
        found = other.get(key=f"many-{number}")
        assert other.get(many[number]) == found
        assert found.args == (number,)
        assert other.cancel(many[number])
    assert list(other.check()) == list(delayq.check()) == []


def test_celerys_own_revoke_finds_it(app, delayq, task_id):
    app.control.revoke(task_id)
    assert delayq.get(task_id) is None
    assert AsyncResult(task_id, app=app).state == states.REVOKED
    # The other workers receive the same revoke, and count it as done.
    assert delayq.services.entries.cancelled_ms_ago(task_id) is not None
