"""The cancelling process stores REVOKED; if it could not, a scanner does so a while later."""

import json

import pytest
from celery import states

from celery_delayq.core.handover.scanner import Outbox
from celery_delayq.core.store.changes import Removal
from tests.app.conftest import app_with_results as app
from tests.app.support import FAR
from tests.support.shards import each, keys_of

__all__ = ["app"]


def overdue(redis):
    """Make all results in the outbox look as if they had been there for a long time."""
    for outbox in each("outbox"):
        for task_id in redis.zrange(outbox, 0, -1):
            redis.zadd(outbox, {task_id: 0})


@pytest.fixture
def away(app, monkeypatch):
    """Let the backend refuse, until the yielded function is called."""
    plain = app.backend.mark_as_revoked

    def refuse(*_, **__):
        raise ConnectionError("away")

    monkeypatch.setattr(app.backend, "mark_as_revoked", refuse)
    return lambda: monkeypatch.setattr(app.backend, "mark_as_revoked", plain)


@pytest.fixture
def drain(delayq, redis):
    outbox: Outbox = delayq.scanner()._outbox

    def drained():
        overdue(redis)
        return outbox.drain()

    yield drained
    for shard_steps in outbox._steps_by_shard:
        shard_steps.close()


@pytest.fixture
def cancelled(add):
    result = add.delay_until(FAR, 1)
    assert result.cancel()
    return result


def owes_nothing(redis):
    return not redis.exists(*each("outbox"), *each("outbox_messages"))


def test_a_cancel_that_stored_revoked_owes_nothing(cancelled, redis):
    assert owes_nothing(redis)


def test_a_result_is_owed_while_the_backend_is_away_until_a_scanner_stores_it(
    redis, away, cancelled, drain
):
    assert redis.zrange(keys_of(cancelled.id)["outbox"], 0, -1) == [cancelled.id.encode()]
    assert not drain()
    assert cancelled.state == states.PENDING
    away()
    assert drain()
    assert cancelled.state == states.REVOKED
    assert owes_nothing(redis)


@pytest.mark.parametrize(
    ("stored", "stays"),
    [((3, states.SUCCESS), states.SUCCESS), ((ValueError(), states.RETRY), states.REVOKED)],
    ids=["a result", "a retry"],
)
def test_a_result_that_was_stored_since_stays_and_a_retry_is_revoked(
    away, cancelled, drain, stored, stays
):
    away()
    cancelled.backend.store_result(cancelled.id, *stored)
    drain()
    assert cancelled.state == stays


def test_a_revoked_that_lands_after_the_id_was_scheduled_anew_is_taken_back(
    app, delayq, add, drain, monkeypatch
):
    result = add.delay_until(FAR, 1)
    delayq.services.entries.change(result.id, Removal("caller"))
    plain = app.backend.mark_as_revoked

    def late(*args, **options):
        delayq.schedule(add.s(2).set(task_id=result.id), at=FAR)
        plain(*args, **options)

    monkeypatch.setattr(app.backend, "mark_as_revoked", late)
    drain()
    assert app.backend.get_state(result.id) == states.PENDING
    assert delayq.get(result.id).args == (2,)


def test_a_message_that_cannot_be_read_is_owed_once(redis, away, cancelled, drain):
    away()
    messages = keys_of(cancelled.id)["outbox_messages"]
    text = redis.hget(messages, cancelled.id)
    redis.hset(messages, cancelled.id, text[:17] + json.dumps([1]).encode())
    drain()
    assert not redis.exists(*each("outbox"))


def test_an_app_without_a_result_backend_owes_nothing_and_its_scanner_looks_for_nothing(
    delayq_app, url, redis
):
    delayq = delayq_app(url).delayq
    result = delayq.schedule(delayq.app.signature("t"), at=FAR)
    assert delayq.cancel(result.id)
    assert not redis.exists(*each("outbox"))
    assert delayq.scanner()._outbox is None
