"""Hooks: whoever is given to the services is told of each step, and cannot spoil it."""

import pytest

from celery_delayq import Outcome
from celery_delayq.services import Hooks
from tests.app.support import FAR, LONG_AGO, hand_over_until_dead
from tests.support.shards import with_one_shard

EVENTS = ("scheduled", "rescheduled", "cancelled", "dead")


@pytest.fixture
def told(delayq):
    """What the hooks were told: (event, task id, ...)."""
    heard = []
    delayq.services.hooks = Hooks(
        **{event: lambda *facts, event=event: heard.append((event, *facts)) for event in EVENTS}
    )
    return heard


def test_each_step_is_told(app, delayq, told):
    app.send_task("t", task_id="a", delayq_at=FAR)
    delayq.reschedule("a", FAR + 60)
    delayq.cancel("a")

    assert [facts[:2] for facts in told] == [
        ("scheduled", "a"),
        ("rescheduled", "a"),
        ("cancelled", "a"),
    ]
    assert [facts[2] for facts in told[:2]] == [FAR * 1000, (FAR + 60) * 1000]


def test_each_item_of_a_bulk_is_told(add, delayq, told):
    bulk = delayq.schedule_many(add, [((1,), {}), ((2,), {}, "soon"), ((3,), {})], at=FAR)

    assert [facts[1] for facts in told] == [bulk.ids[0], bulk.ids[2]]


@with_one_shard
def test_what_is_replaced_is_told_as_cancelled_and_what_is_kept_is_not_told(app, delayq, told):
    for task_id, conflict in (("a", "keep"), ("b", "replace"), ("b", "keep"), ("c", "keep")):
        app.send_task("t", task_id=task_id, delayq_at=FAR, delayq_key="k", delayq_conflict=conflict)

    assert [facts[:2] for facts in told] == [
        ("scheduled", "a"),
        ("scheduled", "b"),
        ("cancelled", "a"),
    ]


def test_what_becomes_dead_is_told_with_the_reason(app, delayq, redis, told):
    redis.set("broken", "not a list")
    app.send_task("t", queue="broken", task_id="a", delayq_at=LONG_AGO)
    del told[:]

    hand_over_until_dead(delayq, redis)

    [(event, task_id, reason)] = told
    assert (event, task_id) == ("dead", "a")
    assert "broken" in reason


def test_what_was_not_done_is_not_told(app, delayq, told):
    app.send_task("t", task_id="a", delayq_at=FAR)
    del told[:]

    assert delayq.cancel("b") is delayq.reschedule("b", FAR) is Outcome.NOT_FOUND
    with pytest.raises(ValueError, match="already scheduled"):
        app.send_task("t", task_id="a", delayq_at=FAR)

    assert told == []


def test_a_hook_that_raises_is_logged_and_spoils_no_step(app, delayq, caplog):
    def broken(*_):
        raise RuntimeError("somebody's mistake")

    delayq.services.hooks = Hooks(scheduled=broken, cancelled=broken)

    app.send_task("t", task_id="a", delayq_at=FAR)

    assert delayq.get("a") is not None
    assert delayq.cancel("a")
    assert [record.exc_info[1].args for record in caplog.records] == [("somebody's mistake",)] * 2
