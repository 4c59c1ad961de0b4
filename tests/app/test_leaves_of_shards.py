"""Leaves of the package with several shards: a dump, remote control, and the end of a test."""

import pytest
from celery import states
from celery.result import AsyncResult

from celery_delayq.contrib.testing.isolation import delete_all
from celery_delayq.core.store.keys import KEYS, Keys
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


@pytest.mark.usefixtures("many")
def test_a_test_of_your_own_leaves_no_key_behind(delayq, redis):
    assert redis.exists("{delayq:0}:meta")
    delete_all(delayq.services.entries.key_sets)
    names = {Keys("delayq", at, n)[name] for n in (1, 3) for at in range(n) for name in KEYS}
    assert not names & {key.decode() for key in redis.keys("*")}


def test_celerys_own_revoke_finds_a_task_on_its_key_s_shard(app, delayq, task_id):
    app.control.revoke(task_id)
    assert delayq.get(task_id) is None
    assert AsyncResult(task_id, app=app).state == states.REVOKED
    # The other workers receive the same revoke, and count it as done.
    assert delayq.services.entries.cancelled_ms_ago(task_id) is not None
