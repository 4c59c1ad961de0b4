"""Tasks of every kind, made in every way, are sent as Celery sends them."""

import copy
import json
from datetime import datetime, timezone

import celery
import pytest
from celery import shared_task
from celery.app.task import Context
from dateutil.parser import isoparse

from celery_delayq import AlreadyScheduled, DelayQ, DelayQTask, ScheduledResult
from celery_delayq.errors import InvalidOption, NoDelayQ
from tests.app.support import FAR, LONG_AGO, comparable, lists, noop

pytestmark = pytest.mark.libraries


DUE = datetime.fromtimestamp(FAR, timezone.utc)


def plain(x, y=0):
    return x + y


def bound(self, x, y=0):
    return x + y


class Base(celery.Task):
    queue_wait = 5


class Adding(celery.Task):
    name = "t"

    def run(self, x, y=0):
        return x + y


class Typed(DelayQTask[[int], int]):
    name = "t"

    def run(self, x, y=0):
        return x + y


def with_base_of_the_app(app):
    base = type("Base", (app.Task,), {"abstract": True})
    return app.task(name="t", base=base)(plain)


KINDS = {
    "app.task": lambda app: app.task(name="t")(plain),
    "bound": lambda app: app.task(name="t", bind=True)(bound),
    "shared_task": lambda _: shared_task(name="t")(plain),
    "base of the app": with_base_of_the_app,
    "base of Celery": lambda app: app.task(name="t", base=Base)(plain),
    "autoretry": lambda app: app.task(name="t", autoretry_for=(ValueError,))(plain),
    "class": lambda app: app.register_task(Adding()),
    "typed class": lambda app: app.register_task(Typed()),
}


@pytest.mark.core
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_task_has_delay_until_and_delay_for(app, delayq, kind):
    task = KINDS[kind](app)

    until, after = task.delay_until(DUE, 1, y=2), task.delay_for(3600, 1, y=2)

    for result in (until, after):
        held = delayq.get(result.id)
        assert (held.task, held.args, held.kwargs) == ("t", (1,), {"y": 2})
        assert isinstance(result, ScheduledResult)
    assert until.due == DUE
    assert task(1, y=2) == 3


# Celery itself does not check the arguments of a task that was written as a class.
@pytest.mark.parametrize("kind", [kind for kind in KINDS if "class" not in kind])
def test_every_kind_of_task_checks_its_arguments_at_the_call(app, redis, kind):
    task = KINDS[kind](app)

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
    task = app.task(name="t", typing=False)(plain)

    assert delayq.get(task.delay_for(60, 1, 2, 3).id).args == (1, 2, 3)


def test_arguments_called_like_options_are_the_task_s(app, delayq):
    @app.task(name="t")
    def task(**kwargs):
        return kwargs

    names = ("queue", "eta", "at", "after", "when", "delay", "delayq_at", "self", "task")
    kwargs = {name: number for number, name in enumerate(names)}

    for result in (task.delay_until(DUE, **kwargs), task.delay_for(60, **kwargs)):
        assert delayq.get(result.id).kwargs == kwargs


# A call, and the name, arguments and queue of the task.
CALLS = {
    "a task without arguments": (
        lambda app, _: app.delayq.schedule(app.task(name="tick")(noop), at=DUE),
        ("tick", (), {}, "celery"),
    ),
    "a name": (
        lambda app, _: app.send_task("elsewhere.t", (1,), {"y": 2}, delayq_at=DUE),
        ("elsewhere.t", (1,), {"y": 2}, "celery"),
    ),
    "a signature of a name": (
        lambda app, _: app.signature("elsewhere.t", args=(1,), kwargs={"y": 2}).delay_until(DUE),
        ("elsewhere.t", (1,), {"y": 2}, "celery"),
    ),
    "an immutable signature": (
        lambda _, add: add.si(4, y=5).delay_until(DUE),
        ("add", (4,), {"y": 5}, "celery"),
    ),
    "a signature that became JSON": (
        lambda app, add: app.signature(
            json.loads(json.dumps(add.s(4).set(queue="mail")))
        ).delay_until(DUE),
        ("add", (4,), {}, "mail"),
    ),
}


@pytest.mark.parametrize("kind", CALLS)
def test_a_call_is_scheduled_as_it_would_be_sent(app, add, delayq, kind):
    call, expected = CALLS[kind]

    held = delayq.get(call(app, add).id)

    assert held.due == DUE
    assert (held.task, held.args, held.kwargs, held.queue) == expected


def test_a_signature_can_be_scheduled_again_and_again_and_does_not_change(add):
    signature = add.s(1).set(queue="mail")
    before = dict(signature), dict(signature.options)

    assert len({signature.delay_for(60).id for _ in range(3)}) == 3
    assert (dict(signature), dict(signature.options)) == before


@pytest.mark.core
@pytest.mark.parametrize("task_cls", [None, DelayQTask])
def test_an_app_without_delayq_says_what_to_do(make_app, task_cls):
    app = make_app()
    app.task_cls = task_cls or app.task_cls
    task = app.task(name="t")(plain)

    with pytest.raises(NoDelayQ) as caught:
        task.delay_for(60, 1)
    assert str(caught.value) == "the app 'tests' has no DelayQ; make one with DelayQ(app)"


# An `apply_async` of the user's own.


class Mine(celery.Task):
    def apply_async(self, args=None, kwargs=None, **options):
        return super().apply_async(args, kwargs, queue="mine", **options)


def test_a_custom_apply_async_that_passes_options_on_is_called(app, delayq):
    task = app.task(name="t", base=Mine)(plain)

    assert delayq.get(task.delay_until(DUE, 1).id).queue == "mine"


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_a_custom_apply_async_may_copy_its_options(app, delayq, copied):
    class Copies(celery.Task):
        def apply_async(self, args=None, kwargs=None, **options):
            options = {name: copied(value) for name, value in options.items()}
            return super().apply_async(args, kwargs, **options)

    task = app.task(name="t", base=Copies)(plain)
    result = task.delay_until(DUE, 1)
    many = delayq.schedule_many(task, [((2,), {}), ((3,), {})], at=DUE)

    assert (result.due, result.existed) == (delayq.get(result.id).due, False)
    assert [delayq.get(one).args for one in many.ids] == [(2,), (3,)]
    assert not many.existed


class Twice(celery.Task):
    def apply_async(self, args=None, kwargs=None, task_id=None, **options):
        result = super().apply_async(args, kwargs, task_id=task_id, **options)
        super().apply_async(("once more",), **options)
        return result


def test_a_custom_apply_async_that_sends_two_schedules_both(app, delayq):
    task = app.task(name="t", base=Twice)(plain)

    one = task.delay_until(DUE, 1)
    many = delayq.schedule_many(task, [((2,), {}), ((3,), {})], at=DUE)

    found = {each.id: each.args for each in delayq.tasks()}
    assert [found.pop(each) for each in (one.id, *many.ids)] == [(1,), (2,), (3,)]
    assert [*found.values()] == [("once more",)] * 3


class SameTwice(celery.Task):
    def apply_async(self, args=None, kwargs=None, **options):
        super().apply_async(args, kwargs, **options)
        return super().apply_async(args, kwargs, **options)


def test_an_item_whose_apply_async_sends_its_id_twice_is_refused_and_not_there(app, delayq):
    many = delayq.schedule_many(app.task(name="t", base=SameTwice)(plain), [((1,), {})], at=DUE)

    assert isinstance(many.refused[0], AlreadyScheduled)
    assert list(delayq.tasks()) == []


# `DelayQTask`: a base that shows type checkers the methods that every task has anyway.


@pytest.mark.core
@pytest.mark.parametrize("name", ["delay_until", "delay_for"])
def test_the_methods_of_the_base_are_those_of_every_task(app, name):
    assert vars(celery.Task)[name] is vars(DelayQTask)[name]


@pytest.mark.core
@pytest.mark.parametrize("base", [DelayQTask, "celery_delayq:DelayQTask"], ids=["class", "name"])
def test_delayqtask_is_the_base_of_an_app_that_names_it(make_app, url, base):
    app = make_app(url)
    app.task_cls = base
    delayq = DelayQ(app)
    task = app.task(name="t")(plain)

    result = task.delay_until(FAR, 1)

    assert isinstance(task, DelayQTask)
    assert delayq.get(result.id).args == (1,)
    delayq.close()


# Messages that a program makes and sends through `app.amqp`, arguments by position or name.


BY_PLACE = ("a", "t", (1,), {"x": 2}, None, None, None, None, 60)
BY_NAME = {"task_id": "a", "name": "t", "args": (1,), "kwargs": {"x": 2}, "expires": 60}


@pytest.fixture(params=["as_task_v2", "create_task_message"])
def make(request, app):
    return getattr(app.amqp, request.param)


def test_a_message_is_made_of_arguments_by_name_as_of_those_by_place(app, make_app, make):
    more = {"now": app.now(), "origin": "me"}
    by_celery = tuple(make_app().amqp.as_task_v2(**BY_NAME, **more))

    assert tuple(make(**BY_NAME, **more)) == tuple(make(*BY_PLACE, **more)) == by_celery


def test_a_message_of_named_arguments_is_scheduled_and_expires_after_its_due_time(
    app, delayq, make
):
    message = make(**BY_NAME, delayq_at=FAR)

    with app.producer_pool.acquire() as producer:
        app.amqp.send_task_message(producer, "t", message)

    assert isoparse(message.headers["expires"]).timestamp() == FAR + 60
    assert delayq.get("a").due.timestamp() == FAR


def test_named_arguments_that_cannot_be_honoured_are_refused(make):
    with pytest.raises(InvalidOption, match="task_id is 5"):
        make(task_id=5, name="t", delayq_at=FAR)
    with pytest.raises(InvalidOption, match="countdown is 7; expected none beside the time"):
        make(task_id="a", name="t", countdown=7, delayq_at=FAR)


def test_a_running_task_s_options_make_a_message(app):
    request = Context(id="a", root_id="r", args=(1,), kwargs={}, delivery_info={}, headers={})

    message = app.amqp.as_task_v2(name="t", args=(1,), **request.as_execution_options())

    assert (message.headers["id"], message.headers["root_id"]) == ("a", "r")


@pytest.mark.parametrize("options", [{}, {"delayq_at": LONG_AGO}], ids=["sent", "scheduled"])
def test_a_message_is_sent_with_options_by_place_as_with_those_by_name(app, redis, options):
    found = []
    for place, name in (((None, None, "q"), {}), ((), {"queue": "q"})):
        message = app.amqp.as_task_v2("a", "t", reply_to="r", **options)
        with app.producer_pool.acquire() as producer:
            app.amqp.send_task_message(producer, "t", message, *place, **name)
        app.delayq.hand_over()
        found.append({key: [*map(comparable, raw)] for key, raw in lists(redis).items()})
        redis.delete("q")

    assert found[0] == found[1]
    assert [*found[0]] == [b"q"]
