"""An `apply_async` that sends nothing, and returns the result of an earlier call."""

import pytest
from celery import Task, states
from celery.result import EagerResult

from celery_delayq.errors import CallRejected, ItemsRefused, NotScheduled
from tests.app.support import FAR, lists, noop

pytestmark = pytest.mark.libraries


class Once(Task):
    """Sends only the first of several calls with the same arguments, as celery-singleton does."""

    def __init__(self):
        self.called = {}

    def apply_async(self, args=None, kwargs=None, task_id=None, **options):
        known = self.called.get(tuple(args or ()))
        if known:
            return self.AsyncResult(known)
        result = super().apply_async(args, kwargs, task_id=task_id, **options)
        self.called[tuple(args or ())] = result.id
        return result


class Graceful(Once):
    """Sends only the first of several calls with the same arguments, as a graceful celery-once."""

    def apply_async(self, args=None, *more, **options):
        if tuple(args or ()) in self.called:
            return EagerResult(None, None, states.REJECTED)
        return super().apply_async(args, *more, **options)


class Never(Task):
    """Sends nothing, and returns nothing."""

    def apply_async(self, *_args, **_options):
        return None


class Forgetful(Task):
    """Drops every option."""

    def apply_async(self, args=None, kwargs=None, **_options):
        return super().apply_async(args, kwargs)


class Mute(Forgetful):
    """And what it made, too."""

    def apply_async(self, args=None, kwargs=None, **options):
        super().apply_async(args, kwargs, **options)


@pytest.fixture
def once(app):
    return app.task(name="once", base=Once)(noop)


@pytest.mark.parametrize("call", [lambda task: task.delay_until, lambda task: task.s().delay_until])
def test_a_duplicate_has_the_result_of_the_call_that_waits(once, delayq, redis, call):
    first = once.delay_until(FAR)

    second = call(once)(FAR + 60)

    assert second.id == first.id
    assert second.due.timestamp() == FAR
    assert second.cancel()
    assert delayq.counts().scheduled == 0
    assert lists(redis) == {}


def test_a_duplicate_of_a_task_that_has_left_has_celery_s_result(once):
    sent = once.apply_async((1,))

    again = once.delay_until(FAR, 1)

    assert type(again) is type(sent)
    assert again == sent


def test_a_duplicate_that_something_else_is_sent_for_is_still_one(app, add, delayq):
    class Audited(Once):
        def apply_async(self, *args, **options):
            add.delay(1)
            return super().apply_async(*args, **options)

    task = app.task(name="audited", base=Audited)(noop)

    assert task.delay_until(FAR).id == task.delay_until(FAR).id
    assert delayq.counts().scheduled == 1


def test_a_duplicate_in_a_bulk_is_not_scheduled_and_drops_nothing_of_the_others(once, delayq):
    known = once.delay_until(FAR, 2)

    bulk = delayq.schedule_many(once, [((1,), {}), ((2,), {}), ((1,), {}), ((3,), {})], at=FAR)

    assert (bulk.ids[1], bulk.ids[2], bulk.refused) == (known.id, bulk.ids[0], {})
    assert (bulk.scheduled, bulk.existed) == (2, {1, 2})
    assert {task.args for task in delayq.tasks()} == {(1,), (2,), (3,)}
    assert delayq.counts().scheduled == 3


@pytest.mark.parametrize("base", [Graceful, Never])
def test_an_item_that_apply_async_rejects_is_refused_with_a_reason(app, delayq, base):
    task = app.task(name="t", base=base)(noop)
    task.apply_async((1,))

    bulk = delayq.schedule_many(task, [((1,), {}), ((1,), {})], at=FAR)

    assert (bulk.ids, bulk.scheduled, bool(bulk)) == ([None, None], 0, False)
    assert all(isinstance(error, CallRejected) for error in bulk.refused.values())
    assert str(bulk.refused[0]) == (
        "the call was rejected: the apply_async of task 't' sent nothing and returned no id"
    )
    with pytest.raises(ItemsRefused, match="2 of 2 items were refused; the first is number 0"):
        bulk.raise_for_refused()


@pytest.mark.parametrize("call", [lambda task: task.delay_until, lambda task: task.s().delay_until])
def test_a_call_that_is_rejected_has_the_result_that_apply_async_returned(app, delayq, call):
    task = app.task(name="t", base=Graceful)(noop)
    task.delay_until(FAR)

    result = call(task)(FAR)

    assert (type(result), result.state, result.id) == (EagerResult, "REJECTED", None)
    assert delayq.counts().scheduled == 1


@pytest.mark.parametrize("base", [Forgetful, Mute])
def test_a_call_raises_if_its_options_are_dropped_and_its_task_is_sent(app, redis, base):
    task = app.task(name="t", base=base)(noop)

    with pytest.raises(NotScheduled, match="was sent, not scheduled"):
        task.delay_until(FAR)
    assert len(lists(redis)[b"celery"]) == 1


def test_an_apply_async_that_returns_nothing_and_sends_nothing_has_no_result(app, redis):
    task = app.task(name="t", base=Never)(noop)

    assert task.delay_until(FAR) is None
    assert lists(redis) == {}
