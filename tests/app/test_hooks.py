"""Hooks: whoever is given to the services is told of each step, and cannot spoil it."""

import pytest

from celery_delayq.hooks import Hooks
from celery_delayq.integration import signals
from tests.app.support import FAR, LONG_AGO
from tests.support.shards import keys_need_one_shard


def give(delayq, **hooks):
    delayq.services.hooks = Hooks(**hooks)


def test_a_hook_that_raises_is_logged_and_spoils_no_step(app, delayq, caplog):
    def broken(*_):
        raise RuntimeError("somebody's mistake")

    give(delayq, **dict.fromkeys(("scheduled", "cancelled", "edited", "rescheduled"), broken))

    app.send_task("t", task_id="a", delayq_at=FAR)

    assert delayq.edit("a", args=[1])
    assert delayq.reschedule("a", FAR + 1)
    assert delayq.cancel("a")
    assert [record.exc_info[1].args for record in caplog.records] == [("somebody's mistake",)] * 4


def test_whoever_is_told_of_a_hand_over_cannot_stop_it(app, delayq, caplog):
    def broken(*_):
        raise RuntimeError("somebody's mistake")

    give(delayq, handed_over=broken, hears_handed_over=lambda: True)
    app.send_task("t", task_id="a", delayq_at=LONG_AGO)

    assert delayq.hand_over() == 1
    assert [record.exc_info[1].args for record in caplog.records] == [("somebody's mistake",)]


@pytest.mark.parametrize("wanted", [True, False])
def test_messages_are_read_only_where_they_are_wanted(app, delayq, wanted):
    told = []
    give(delayq, cancelled=told.extend, hears_messages=lambda: wanted)
    app.send_task("t", task_id="a", delayq_at=FAR)
    app.send_task("t", task_id="b", delayq_at=FAR)

    delayq.cancel("a")
    delayq.select(all=True).cancel()

    assert [(one.task_id, bool(one.message)) for one in told] == [("a", wanted), ("b", wanted)]


@pytest.mark.parametrize("wanted", [True, False])
def test_the_ids_of_a_hand_over_are_read_only_where_they_are_wanted(app, delayq, wanted):
    told = []
    give(delayq, handed_over=told.append, hears_handed_over=lambda: wanted)
    app.send_task("t", task_id="a", delayq_at=LONG_AGO)

    assert delayq.hand_over() == 1
    assert told == ([["a"]] if wanted else [])


@keys_need_one_shard
@pytest.mark.parametrize("own_id", [True, False])
def test_what_gives_way_is_told_apart_from_what_is_cancelled(app_with_results, own_id):
    delayq, told, gone = app_with_results.delayq, [], []
    give(delayq, gave_way=told.extend, cancelled=gone.extend)
    for task_id in ("a", "a" if own_id else "b"):
        app_with_results.send_task(
            "t", task_id=task_id, delayq_at=FAR, delayq_key="k", delayq_conflict="keep"
        )

    # Of its own id it is no other task.
    assert [(one.task_id, one.reason) for one in told] == ([] if own_id else [("b", "kept a")])
    assert gone == []


def test_an_app_s_hooks_want_nothing_while_nobody_listens(app):
    hooks = signals.hooks(app)

    assert not hooks.hears_messages()
    assert not hooks.hears_handed_over()
