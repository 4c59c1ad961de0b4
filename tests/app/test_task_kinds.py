"""Tasks and signatures made in every way are scheduled, and are sent as Celery sends them."""

import copy
from datetime import datetime, timezone

import celery
import pytest
from celery import shared_task

from celery_delayq import AlreadyScheduled, DelayQError, InvalidDueTime, ScheduledResult
from tests.app.support import FAR

pytestmark = pytest.mark.libraries

DUE = datetime.fromtimestamp(FAR, timezone.utc)


def app_task(app):
    @app.task(name="t")
    def task(x, y=0):
        return x + y

    return task


def bound_task(app):
    @app.task(name="t", bind=True)
    def task(self, x, y=0):
        return x + y

    return task


def task_of_shared_task(app):
    @shared_task(name="t")
    def task(x, y=0):
        return x + y

    return task


def task_with_base_of_the_app(app):
    class Base(app.Task):
        abstract = True

    @app.task(name="t", base=Base)
    def task(x, y=0):
        return x + y

    return task


def task_with_base_from_celery(app):
    class Base(celery.Task):
        queue_wait = 5

    @app.task(name="t", base=Base)
    def task(x, y=0):
        return x + y

    return task


def task_class(app):
    class Adding(celery.Task):
        name = "t"

        def run(self, x, y=0):
            return x + y

    return app.register_task(Adding())


def autoretrying_task(app):
    @app.task(name="t", autoretry_for=(ValueError,), retry_backoff=True)
    def task(x, y=0):
        return x + y

    return task


KINDS = [
    app_task,
    bound_task,
    task_of_shared_task,
    task_with_base_of_the_app,
    task_with_base_from_celery,
    task_class,
    autoretrying_task,
]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_task_has_delay_until_and_delay_for(app, delayq, kind):
    task = kind(app)

    until, after = task.delay_until(DUE, 1, y=2), task.delay_for(3600, 1, y=2)

    for result in (until, after):
        held = delayq.get(result.id)
        assert (held.task, held.args, held.kwargs) == ("t", (1,), {"y": 2})
        assert isinstance(result, ScheduledResult)
    assert until.due == DUE


# Celery itself does not check the arguments of a task that was written as a class.
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind is not task_class])
def test_every_kind_of_task_checks_its_arguments_at_the_call(app, redis, kind):
    task = kind(app)

    for call in (
        lambda: task.delay_until(DUE),
        lambda: task.delay_for(60, 1, 2, 3),
        lambda: task.delay_for(60, 1, z=3),
        lambda: task.apply_async((), delayq_at=DUE),
        lambda: task.s().delay_until(DUE),
        lambda: task.s(1, 2, 3).delay_for(60),
        lambda: app.delayq.schedule(task, at=DUE),
    ):
        with pytest.raises(TypeError):
            call()
    assert redis.keys() == []


def test_arguments_are_not_checked_where_the_task_says_so(app, delayq):
    @app.task(name="t", typing=False)
    def task(x):
        return x

    assert delayq.get(task.delay_for(60, 1, 2, 3).id).args == (1, 2, 3)


def test_a_task_s_own_argument_may_be_called_when_or_delay(app, delayq):
    @app.task(name="t")
    def task(when, delay):
        return when, delay

    assert delayq.get(task.delay_until(DUE, "a", delay="b").id).kwargs == {"delay": "b"}
    assert delayq.get(task.delay_for(60, when="a", delay="b").id).kwargs == {
        "when": "a",
        "delay": "b",
    }


def test_arguments_called_like_options_are_the_task_s(app, delayq):
    @app.task(name="t")
    def task(**kwargs):
        return kwargs

    kwargs = {"queue": 1, "eta": 2, "at": 3, "after": 4, "delayq_at": 5, "self": 6, "task": 7}

    assert delayq.get(task.delay_until(DUE, **kwargs).id).kwargs == kwargs


def test_send_task_by_name_takes_the_time_as_an_option(app, delayq):
    at = app.send_task("elsewhere.t", (1,), {"y": 2}, delayq_at=DUE)
    after = app.send_task("elsewhere.t", (1,), delayq_after=3600)

    assert (delayq.get(at.id).task, delayq.get(at.id).due) == ("elsewhere.t", DUE)
    assert delayq.get(after.id).args == (1,)


def test_a_signature_by_name_is_scheduled_without_its_task(app, delayq):
    result = app.signature("elsewhere.t", args=(1,), kwargs={"y": 2}).delay_until(DUE)

    held = delayq.get(result.id)
    assert (held.task, held.args, held.kwargs) == ("elsewhere.t", (1,), {"y": 2})


def test_an_immutable_signature_keeps_its_arguments(app, add, delayq):
    result = add.si(4, y=5).delay_until(DUE)

    held = delayq.get(result.id)
    assert (held.args, held.kwargs) == ((4,), {"y": 5})


def test_a_signature_that_became_a_dict_is_scheduled_as_it_was(app, add, delayq):
    import json

    signature = app.signature(json.loads(json.dumps(add.s(4).set(queue="mail"))))

    held = delayq.get(signature.delay_until(DUE).id)
    assert (held.args, held.queue) == ((4,), "mail")


def test_schedule_takes_a_task_or_a_signature(app, add, delayq):
    @app.task(name="tick")
    def tick():
        return None

    assert delayq.get(delayq.schedule(tick, at=DUE).id).task == "tick"
    assert delayq.get(delayq.schedule(add.s(1), after=60).id).args == (1,)


def test_scheduling_a_signature_does_not_change_it(app, add):
    signature = add.s(1).set(queue="mail")
    before = dict(signature), dict(signature.options)

    signature.delay_for(60)

    assert (dict(signature), dict(signature.options)) == before


def test_a_signature_can_be_scheduled_again_and_again(add):
    signature = add.s(1)

    assert len({signature.delay_for(60).id for _ in range(3)}) == 3


@pytest.mark.parametrize(
    "times", [{}, {"at": DUE, "after": 60}, {"at": None}], ids=["none", "two", "null"]
)
def test_schedule_wants_exactly_one_time(add, delayq, redis, times):
    with pytest.raises(ValueError, match="exactly one of at, after"):
        delayq.schedule(add.s(1), **times)
    assert redis.keys() == []


@pytest.mark.parametrize("what", ["add", 5, None, print])
def test_schedule_refuses_what_is_no_task(delayq, redis, what):
    with pytest.raises(TypeError):
        delayq.schedule(what, after=60)
    assert redis.keys() == []


def test_a_custom_apply_async_that_drops_options_is_named(app):
    class Base(celery.Task):
        def apply_async(self, args=None, kwargs=None, **_):
            return super().apply_async(args, kwargs)

    @app.task(name="t", base=Base)
    def task(x):
        return x

    with pytest.raises(DelayQError, match="was sent, not scheduled: its apply_async drops options"):
        task.delay_for(60, 1)


def test_a_custom_apply_async_that_passes_options_on_is_called(app, delayq):
    calls = []

    class Base(celery.Task):
        def apply_async(self, args=None, kwargs=None, **options):
            calls.append(args)
            return super().apply_async(args, kwargs, queue="mine", **options)

    @app.task(name="t", base=Base)
    def task(x):
        return x

    assert delayq.get(task.delay_until(DUE, 1).id).queue == "mine"
    assert calls == [(1,)]


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_a_custom_apply_async_may_copy_its_options(app, delayq, copied):
    class Base(celery.Task):
        def apply_async(self, args=None, kwargs=None, **options):
            options = {name: copied(value) for name, value in options.items()}
            return super().apply_async(args, kwargs, **options)

    @app.task(name="t", base=Base)
    def task(x):
        return x

    result = task.delay_until(DUE, 1)
    many = delayq.schedule_many(task, [((2,), {}), ((3,), {})], at=DUE)

    assert (result.due, result.existed) == (delayq.get(result.id).due, False)
    assert [delayq.get(one).args for one in many.ids] == [(2,), (3,)]
    assert not many.existed


def test_a_custom_apply_async_that_sends_two_schedules_both(app, delayq):
    class Base(celery.Task):
        def apply_async(self, args=None, kwargs=None, task_id=None, **options):
            result = super().apply_async(args, kwargs, task_id=task_id, **options)
            super().apply_async(("once more",), **options)
            return result

    @app.task(name="t", base=Base)
    def task(x):
        return x

    one = task.delay_until(DUE, 1)
    many = delayq.schedule_many(task, [((2,), {}), ((3,), {})], at=DUE)

    found = {each.id: each.args for each in delayq.tasks()}
    assert [found.pop(each) for each in (one.id, *many.ids)] == [(1,), (2,), (3,)]
    assert [*found.values()] == [("once more",)] * 3


def test_an_item_whose_apply_async_sends_its_id_twice_is_refused_and_not_there(app, delayq):
    class Base(celery.Task):
        def apply_async(self, args=None, kwargs=None, **options):
            super().apply_async(args, kwargs, **options)
            return super().apply_async(args, kwargs, **options)

    @app.task(name="t", base=Base)
    def task(x):
        return x

    many = delayq.schedule_many(task, [((1,), {})], at=DUE)

    assert isinstance(many.refused[0], AlreadyScheduled)
    assert list(delayq.tasks()) == []


def test_an_app_without_delayq_says_what_to_do(make_app):
    app = make_app()

    @app.task(name="t")
    def task(x):
        return x

    assert hasattr(task, "delay_until")
    with pytest.raises(DelayQError) as caught:
        task.delay_for(60, 1)
    assert str(caught.value) == "the app 'tests' has no DelayQ; make one with DelayQ(app)"


def test_both_methods_refuse_a_wrong_time_before_they_look_at_the_arguments(add):
    with pytest.raises(InvalidDueTime):
        add.delay_until("tomorrow")
