"""`task_always_eager`: what Celery does, and nothing in Redis."""

import pytest
from celery import group
from celery.result import EagerResult

from celery_delayq import InvalidDueTime


@pytest.fixture
def eager(held_app, url):
    return held_app(url, task_always_eager=True)


@pytest.fixture
def ran(eager):
    """A task that notes its arguments."""
    seen = []

    @eager.task(name="note")
    def note(x, y=0):
        seen.append((x, y))
        return x + y

    note.seen = seen
    return note


@pytest.mark.parametrize(
    "call",
    [
        lambda task: task.delay_until(4_000_000_000, 1, y=2),
        lambda task: task.delay_for(3600, 1, y=2),
        lambda task: task.s(1, y=2).delay_for(3600),
        lambda task: task.s(1, y=2).set(queue="mail", expires=60).delay_until("2100-01-01"),
        lambda task: task.app.delayq.schedule(task.s(1, y=2), after=3600),
        lambda task: task.apply_async((1,), {"y": 2}, delayq_after=3600),
    ],
)
def test_a_task_runs_at_the_call_and_its_result_is_celery_s(ran, redis, call):
    result = call(ran)

    assert isinstance(result, EagerResult)
    assert result.get() == 3
    assert ran.seen == [(1, 2)]
    assert redis.keys() == []


def test_a_wrong_time_is_refused_all_the_same(ran):
    with pytest.raises(InvalidDueTime):
        ran.delay_for("soon", 1)
    assert ran.seen == []


def test_wrong_arguments_are_refused_all_the_same(ran):
    with pytest.raises(TypeError):
        ran.delay_for(60)
    assert ran.seen == []


def test_an_error_of_the_task_is_in_the_result(eager, redis):
    @eager.task(name="fail")
    def fail():
        raise KeyError("x")

    result = fail.delay_for(60)

    assert result.state == "FAILURE"
    assert redis.keys() == []


def test_errors_are_raised_where_the_app_wants_them(held_app, url):
    app = held_app(url, task_always_eager=True, task_eager_propagates=True)

    @app.task(name="fail")
    def fail():
        raise KeyError("x")

    with pytest.raises(KeyError):
        fail.delay_for(60)


def test_a_group_runs_at_the_call(ran, redis):
    result = group(ran.s(1), ran.s(2)).delay_for(3600)

    assert result.get() == [1, 2]
    assert redis.keys() == []


def test_a_chain_runs_at_the_call(ran, redis):
    result = (ran.s(1) | ran.s(5)).delay_for(3600)

    assert result.get() == 6
    assert redis.keys() == []


def test_captured_times_do_not_matter_when_eager(held_app, url, redis):
    app = held_app(url, task_always_eager=True, delayq_capture_eta=True)

    @app.task(name="t")
    def task(x):
        return x

    assert task.apply_async((1,), countdown=3600).get() == 1
    assert redis.keys() == []
