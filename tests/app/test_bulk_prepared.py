"""If anything reads a single task's arguments or id, Celery makes every message of a bulk."""

from types import SimpleNamespace

import pytest
from celery import Task, signals
from celery.app.routes import MapRoute, Router

from tests.app.bulk import ITEMS, both_ways, plain_task
from tests.app.support import FAR

pytestmark = pytest.mark.libraries


@pytest.fixture
def connected():
    """Connect a handler for the length of this test."""
    made = []

    def connect(signal, handler):
        signal.connect(handler, weak=False)
        made.append((signal, handler))

    yield connect
    for signal, handler in made:
        signal.disconnect(handler)


@pytest.mark.parametrize("what", ["headers", "body"])
def test_a_handler_before_publishing_may_edit_every_message(
    app, redis, made_by_celery, connected, what
):
    def edit(headers, body, **_):
        if what == "headers":
            headers["x"] = headers["argsrepr"]
        else:
            body[2]["chain"] = [headers["kwargsrepr"]]

    connected(signals.before_task_publish, edit)

    singly, together = both_ways(redis, plain_task(app).s())

    assert together == singly
    assert len(made_by_celery) == len(ITEMS)


@pytest.mark.parametrize("signal", ["after_task_publish", "task_sent"])
def test_a_handler_after_publishing_hears_of_every_task(app, delayq, connected, signal):
    heard = []
    connected(getattr(signals, signal), lambda **given: heard.append(given))

    delayq.schedule_many(plain_task(app), ITEMS, at=FAR)

    assert len(heard) == len(ITEMS)


def route_by_arguments(name, args, kwargs, options, task=None, **_):
    return {"queue": f"q{len(args)}"}


class OldRouter:
    def route_for_task(self, task, args=None, kwargs=None):
        return {"queue": f"q{len(args)}"}


class MapOfArguments(MapRoute):
    def __call__(self, name, args, *_, **__):
        return {"queue": f"q{len(args)}"}


ROUTES = {
    "function": route_by_arguments,
    "function behind a map": ({"other.*": "other"}, route_by_arguments),
    "name": f"{__name__}.route_by_arguments",
    "old class": OldRouter(),
    "kind of map": (MapOfArguments({}),),
}


@pytest.mark.parametrize("name", ROUTES)
def test_a_router_sees_every_task_s_arguments(delayq_app, url, redis, made_by_celery, name):
    app = delayq_app(url, task_routes=ROUTES[name])

    singly, together = both_ways(redis, plain_task(app).s())

    assert together == singly
    assert together.keys() == {b"q0", b"q1", b"q2"}
    assert len(made_by_celery) == len(ITEMS)


def test_a_router_of_the_signature_sees_every_task_s_arguments(app, redis, made_by_celery):
    def route(options, name, args, *_):
        return {**options, "queue": app.amqp.queues[f"q{len(args)}"]}

    router = SimpleNamespace(route=route)

    singly, together = both_ways(redis, plain_task(app).s().set(router=router))

    assert together == singly
    assert len(made_by_celery) == len(ITEMS)


def test_a_router_of_the_app_s_own_sees_every_task_s_arguments(app, redis, made_by_celery):
    class ByArguments(Router):
        def route(self, options, name, args=(), kwargs=None, task_type=None):
            options = {**options, "queue": f"q{len(args)}"}
            return super().route(options, name, args, kwargs, task_type)

    app.amqp.router = ByArguments(queues=app.amqp.queues, app=app)

    singly, together = both_ways(redis, plain_task(app).s())

    assert together == singly
    assert len(made_by_celery) == len(ITEMS)


class Arguments(Task):
    """Sends to a queue according to the arguments."""

    def apply_async(self, args=None, kwargs=None, **options):
        return super().apply_async(args, kwargs, **{**options, "queue": f"q{len(args)}"})


def shadow_name(self, args, kwargs, options):
    return f"remind {args}"


class Shadow(Task):
    shadow_name = shadow_name


@pytest.mark.parametrize("base", [Arguments, Shadow])
def test_a_task_s_own_methods_see_every_task_s_arguments(app, redis, made_by_celery, base):
    singly, together = both_ways(redis, plain_task(app, base=base).s())

    assert together == singly
    assert len(made_by_celery) == len(ITEMS)


def test_a_shadow_name_given_as_an_option_sees_every_task_s_arguments(app, redis, made_by_celery):
    task = plain_task(app, shadow_name=shadow_name)

    singly, together = both_ways(redis, task.s())

    assert together == singly
    assert len(made_by_celery) == len(ITEMS)


def test_pydantic_arguments_are_dumped_of_every_task(app, redis, made_by_celery):
    task = plain_task(app)
    task._dump_pydantic_arguments = lambda args, kwargs: ([str(args)], {"k": str(kwargs)})

    singly, together = both_ways(redis, task.s())

    assert together == singly
    assert len(made_by_celery) == len(ITEMS)


OF_ONE_TASK = {
    "repr of args": {"argsrepr": "()"},
    "repr of kwargs": {"kwargsrepr": "{}"},
    "repr of args in a header": {"headers": {"argsrepr": "()"}},
    "repr of kwargs in a header": {"headers": {"kwargsrepr": "{}"}},
    "id in a header": {"headers": {"id": "a"}},
    "root in a header": {"headers": {"root_id": "a"}},
    "expiry in a header": {"headers": {"expires": "+5"}},
}


@pytest.mark.parametrize("name", OF_ONE_TASK)
def test_a_value_is_not_taken_for_arguments_or_an_id_that_it_equals_by_chance(app, redis, name):
    items = [((), {}), *ITEMS]

    singly, together = both_ways(
        redis, plain_task(app).s().set(**OF_ONE_TASK[name]), items, ids="abcdef"
    )

    assert together == singly
