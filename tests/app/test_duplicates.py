"""An `apply_async` that sends nothing, and returns the result of an earlier call."""

import pytest
from celery import Task

from celery_delayq.errors import NotScheduled
from tests.app.support import FAR, lists


class Once(Task):
    """Of several calls with the same arguments, the first; as celery-singleton has it."""

    def __init__(self):
        self.called = {}

    def apply_async(self, args=None, kwargs=None, task_id=None, **options):
        known = self.called.get(tuple(args or ()))
        if known:
            return self.AsyncResult(known)
        result = super().apply_async(args, kwargs, task_id=task_id, **options)
        self.called[tuple(args or ())] = result.id
        return result


class Forgetful(Task):
    """Drops every option."""

    def apply_async(self, args=None, kwargs=None, **_options):
        return super().apply_async(args, kwargs)


class Mute(Forgetful):
    """And what it made, too."""

    def apply_async(self, args=None, kwargs=None, **options):
        super().apply_async(args, kwargs, **options)


def noop(*_args):
    """A task that nobody runs."""


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


def test_a_duplicate_in_a_bulk_drops_nothing_of_the_others(once, delayq):
    known = once.delay_until(FAR, 2)

    bulk = delayq.schedule_many(once, [((1,), {}), ((2,), {}), ((1,), {}), ((3,), {})], at=FAR)

    assert (bulk.ids[1], bulk.ids[2], bulk.refused) == (known.id, bulk.ids[0], {})
    assert delayq.counts().scheduled == 3
    assert {task.args for task in delayq.tasks()} == {(1,), (2,), (3,)}


@pytest.mark.parametrize("base", [Forgetful, Mute])
def test_what_was_sent_because_its_options_were_dropped_is_told(app, redis, base):
    task = app.task(name="t", base=base)(noop)

    with pytest.raises(NotScheduled, match="was sent, not scheduled"):
        task.delay_until(FAR)
    assert len(lists(redis)[b"celery"]) == 1


def test_an_apply_async_that_returns_nothing_and_sends_nothing_has_no_result(app, redis):
    class Never(Task):
        def apply_async(self, *_args, **_options):
            return None

    task = app.task(name="t", base=Never)(noop)

    assert task.delay_until(FAR) is None
    assert lists(redis) == {}
