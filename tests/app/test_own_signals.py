"""`celery_delayq.signals`: each step sends one signal on its changes, in Celery's own form."""

from datetime import datetime, timezone

import pytest
from celery import chain, group

from celery_delayq import Outcome, signals
from tests.app.support import FAR, LONG_AGO, WAYS, redis_ms
from tests.support.places import take

pytestmark = pytest.mark.libraries

DUE = datetime(2100, 1, 1, tzinfo=timezone.utc)
LATER = datetime(2100, 1, 1, 0, 1, tzinfo=timezone.utc)


@pytest.fixture
def heard(app):
    """The signals sent for *app*'s tasks: (signal, its arguments)."""
    return listening_to(app)


def listening_to(app):
    told = []

    def listen(name):
        def receiver(sender, signal, **facts):
            assert sender is app
            if facts.get("actor") == "":  # no actor was named
                del facts["actor"]
            told.append((name, facts))

        getattr(signals, name).connect(receiver, sender=app, weak=False)

    for name in signals.__all__:
        listen(name)
    return told


def ids(heard, name):
    return [facts["task_id"] for told, facts in heard if told == name]


@pytest.mark.parametrize("named", [{"task_id": "a"}, {"key": "k"}], ids=["id", "key"])
def test_a_task_that_is_scheduled_moved_edited_and_cancelled(app, delayq, heard, named):
    app.send_task("t", task_id="a", delayq_at=FAR, delayq_key="k")
    delayq.reschedule(**named, by=60)
    delayq.edit(**named, priority=3)
    delayq.cancel(**named)

    assert heard == [
        ("task_scheduled", {"task_id": "a", "due": DUE}),
        ("task_rescheduled", {"task_id": "a", "due": LATER}),
        ("task_edited", {"task_id": "a"}),
        ("task_cancelled", {"task_id": "a", "reason": "cancelled", "uncertain": False}),
    ]


def test_signals_of_the_caller_name_who_acts(app, delayq, heard):
    with delayq.acting("ann@support"):
        app.send_task("t", task_id="a", delayq_at=FAR)
        delayq.reschedule("a", by=60)
        delayq.edit("a", priority=3)
        delayq.cancel("a")
        app.send_task("t", task_id="b", delayq_at=FAR, delayq_tags=["x"])
        delayq.select(tag="x").cancel()
    app.send_task("t", task_id="c", delayq_at=FAR)

    assert [facts.get("actor") for _, facts in heard] == ["ann@support"] * 6 + [None]


def test_a_listener_gets_no_signal_of_another_app(app, delayq_app, url, heard):
    other = delayq_app(url, delayq_prefix="other")

    other.send_task("t", task_id="a", delayq_at=FAR)
    other.delayq.cancel("a")

    assert heard == []


CALLS = {
    **{name: lambda add, way=way: way(add, 1) for name, way in WAYS.items()},
    "chain": lambda add: add.app.delayq.schedule(chain(add.s(1), add.s(2)), at=FAR),
    "group": lambda add: add.app.delayq.schedule(group(add.s(1), add.s(2)), at=FAR),
}


@pytest.mark.parametrize("way", CALLS)
def test_each_way_of_scheduling_tells_once(add, heard, way):
    result = CALLS[way](add)

    assert heard == [("task_scheduled", {"task_id": result.id, "due": DUE})]


@pytest.mark.parametrize("count", [1, 3, 250])
def test_each_item_of_a_bulk_that_was_scheduled_is_told(add, delayq, heard, count):
    items = [((one,), {}) for one in range(count)]

    bulk = delayq.schedule_many(add, [*items, ((1,), {}, "soon")], at=FAR)

    assert ids(heard, "task_scheduled") == bulk.ids[:-1]
    assert len(heard) == count


def test_a_change_that_is_not_made_sends_no_signal(app, delayq, heard):
    app.send_task("t", task_id="a", delayq_at=FAR)
    del heard[:]

    assert delayq.cancel("b") is delayq.reschedule("b", FAR) is Outcome.NOT_FOUND
    assert delayq.edit("b", args=[1]) is Outcome.NOT_FOUND
    assert delayq.reschedule("a", FAR + 1, only="earlier") is Outcome.UNCHANGED
    assert delayq.edit("a", args=[1], if_revision=1) is Outcome.UNCHANGED
    assert delayq.retry("a") is delayq.remove("a") is Outcome.UNCHANGED
    with pytest.raises(ValueError, match="already scheduled"):
        app.send_task("t", task_id="a", delayq_at=FAR)

    assert heard == []


def test_a_replaced_task_is_cancelled_with_a_reason_and_a_kept_one_sends_no_signal(app, heard):
    for task_id, conflict in (("a", "keep"), ("b", "replace"), ("b", "keep"), ("c", "keep")):
        app.send_task("t", task_id=task_id, delayq_at=FAR, delayq_key="k", delayq_conflict=conflict)

    assert heard == [
        ("task_scheduled", {"task_id": "a", "due": DUE}),
        ("task_scheduled", {"task_id": "b", "due": DUE}),
        ("task_cancelled", {"task_id": "a", "reason": "replaced by b", "uncertain": False}),
    ]


def test_a_task_that_its_own_bulk_replaces_is_scheduled_and_cancelled(add, delayq, heard):
    sig = add.s().set(delayq_key="k", delayq_conflict="replace")

    bulk = delayq.schedule_many(sig, [((1,), {}), ((2,), {})], at=FAR)

    assert ids(heard, "task_scheduled") == bulk.ids
    assert ids(heard, "task_cancelled") == bulk.ids[:1]


def test_a_selection_tells_of_each_task_that_it_changed(add, app, delayq, heard):
    sent = {app.send_task("t", delayq_at=FAR).id for _ in range(3)}
    add.delay_until(FAR, 1)
    del heard[:]

    mine = delayq.select(task="t")
    mine.reschedule(by=60)
    mine.reschedule(FAR, only="later")
    mine.cancel(dry_run=True)
    moved, heard[:] = heard[:], []
    mine.cancel()

    assert {name for name, _ in moved} == {"task_rescheduled"}
    assert {facts["task_id"] for _, facts in moved} == sent
    assert {facts["due"] for _, facts in moved} == {LATER}
    assert sorted(ids(heard, "task_cancelled")) == sorted(sent)
    assert len(heard) == 3


def test_run_now_sends_task_rescheduled_with_the_present_time(app, delayq, redis, heard):
    for task_id in ("a", "b"):
        app.send_task("t", task_id=task_id, delayq_at=FAR)
    del heard[:]
    before = redis_ms(redis)

    delayq.run_now("a")
    delayq.select(all=True, before_due=FAR + 1, after_due=FAR).run_now()

    assert ids(heard, "task_rescheduled") == ["a", "b"]
    for _, facts in heard:
        assert int(before) <= facts["due"].timestamp() * 1000 <= redis_ms(redis) + 1


def test_a_batch_that_is_handed_over_is_told_as_one(app, delayq, heard):
    for task_id in ("a", "b"):
        app.send_task("t", task_id=task_id, delayq_at=LONG_AGO)
    app.send_task("t", task_id="c", queue="another", delayq_at=LONG_AGO)
    app.send_task("t", task_id="later", delayq_at=FAR)
    del heard[:]

    assert delayq.hand_over() == 3

    batches = [facts["task_ids"] for name, facts in heard if name == "task_handed_over"]
    assert sorted(task_id for batch in batches for task_id in batch) == ["a", "b", "c"]
    assert len(heard) == len(batches)


def test_a_paused_task_has_its_signal_when_it_is_delivered(app, delayq, heard):
    app.send_task("t", task_id="a", delayq_at=LONG_AGO)
    del heard[:]

    delayq.pause(all=True)
    delayq.hand_over()
    assert heard == []
    delayq.resume(all=True)
    assert heard == []
    delayq.hand_over()

    assert heard == [("task_handed_over", {"task_ids": ["a"]})]


def test_a_task_that_is_too_late_is_skipped_and_neither_cancelled_nor_delivered(app, delayq, heard):
    app.send_task("t", task_id="a", delayq_at=LONG_AGO, delayq_late="skip", delayq_grace=5)
    del heard[:]

    delayq.hand_over()

    [(name, facts)] = heard
    assert (name, facts["task_id"]) == ("task_skipped", "a")
    assert facts["reason"].startswith("skipped: ")


def test_a_task_that_a_list_refuses_is_dead_then_retried_and_removed(app, delayq, heard):
    app.send_task("t", queue="broken", task_id="a", delayq_at=LONG_AGO)
    del heard[:]

    take(delayq, "dead", "a")
    [(name, facts)] = heard
    assert (name, facts["task_id"]) == ("task_dead", "a")
    assert "broken" in facts["reason"]
    delayq.retry("a")
    take(delayq, "dead", "a")
    delayq.remove("a")

    assert [name for name, _ in heard[1:]] == ["task_rescheduled", "task_dead", "task_cancelled"]


def test_a_dead_task_that_cannot_be_read_is_told_when_it_is_removed(app, delayq, redis, heard):
    app.send_task("t", task_id="a", delayq_at=LONG_AGO)
    [key] = [key for key in redis.keys("*:records") if redis.hlen(key)]
    redis.hset(key, "a", b"0" + redis.hget(key, "a")[1:])
    delayq.hand_over()
    del heard[:]

    delayq.remove("a")

    assert ids(heard, "task_cancelled") == ["a"]
