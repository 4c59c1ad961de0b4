"""`schedule_many` sends the same messages as `schedule`; otherwise it does not take its fast path.

Celery makes the messages of the first two items. If nothing reads a single task's arguments or
id, all other messages are made from these two; else Celery makes every message.
"""

import re
from datetime import datetime, timezone
from types import MethodType, SimpleNamespace
from unittest import mock

import pytest
from celery import Task, signals
from celery._state import _task_stack
from celery.app.amqp import AMQP
from celery.app.routes import MapRoute, Router
from celery.canvas import Signature
from kombu import Exchange, Queue

from celery_delayq import DelayQ
from tests.app.bulk import ITEMS, both_ways, plain_task
from tests.app.support import FAR, comparable
from tests.app.test_contract import OPTIONS as OF_CALLS
from tests.app.test_contract import SERIALIZERS
from tests.support.shards import keys_of

pytestmark = pytest.mark.libraries

EVERY = len(ITEMS)


@pytest.fixture
def alike(redis, made_by_celery):
    """Send the same calls one by one and as a bulk, of which Celery makes two or all messages."""

    def alike(signature, items=ITEMS, *, made=2, **more):
        singly, together = both_ways(redis, signature, items, **more)
        assert together == singly
        assert len(made_by_celery) == made
        return together

    return alike


EXPIRY = datetime(2200, 1, 1, tzinfo=timezone.utc)
NAMES = ("queue", "priority", "headers", "limits", "stamps", "shadow", "of the call", "ids")
OPTIONS = {
    "none": {},
    **{name: OF_CALLS[name] for name in (*NAMES, "ignore_result")},
    "queue object": {"queue": Queue("mail", Exchange("mails", "topic"), routing_key="m.x")},
    "serializer": {"serializer": "pickle"},
    "compression": {"compression": "zlib"},
    "absolute expiry": {"expires": EXPIRY},
    "expiry as text": {"expires": EXPIRY.isoformat()},
    "relative expiry": {"expires": 60},
    "result wanted": {"ignore_result": False},
    "link": {"link": Signature("then", args=(1,), kwargs={"ü": 2}, options={"queue": "q"})},
    "link_error": {"link_error": [Signature("oh"), Signature("no")]},
    "chain": {"chain": [Signature("then", immutable=True)]},
    "tags": {"delayq_tags": ["a"], "delayq_late": "skip", "delayq_grace": 5 * 10**9},
    "none at all": {"queue": None, "priority": None, "expires": None},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_options_of_the_signature_are_in_every_message(delayq_app, url, alike, name):
    app = delayq_app(url, accept_content=SERIALIZERS)

    alike(plain_task(app).s().set(**OPTIONS[name]))


SETTINGS = {
    "key prefix": {"broker_transport_options": {"global_keyprefix": "pre:"}},
    "plain bodies": {"broker_transport_options": {"body_encoding": None}},
    "route": {"task_routes": {"tests.remind": {"queue": "mail", "priority": 3}}},
    "glob": {"task_routes": ({"other.*": "other"}, {"tests.*": "mail"})},
    "pattern": {"task_routes": ([(re.compile("tests[.]"), {"queue": "mail"})],)},
    "default priority": {"task_default_priority": 5, "task_queue_max_priority": 9},
    "serializer": {"task_serializer": "pickle"},
    "compression": {"task_compression": "gzip"},
    "annotations": {"task_annotations": {"*": {"time_limit": 9, "priority": 4}}},
    "ignored results": {"task_ignore_result": True},
    "depth for logs": {"task_repr_maxlevels": 1},
    "sent events": {"task_send_sent_event": True},
}


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_of_the_app_are_in_every_message(delayq_app, url, alike, name):
    alike(plain_task(delayq_app(url, accept_content=["json", "pickle"], **SETTINGS[name])).s())


def test_a_broker_elsewhere_gets_what_it_gets_one_by_one(delayq_app, url, redis_server, alike):
    app = delayq_app(url, delayq_url=redis_server.url(7), task_routes={"tests.*": "mail"})

    alike(plain_task(app).s())


class Remind(Task):
    name = "tests.remind"

    def run(self, x=0, y=0):
        return x


PLAIN = {"task": "tests.remind", "args": [], "kwargs": {}, "options": {"queue": "q"}}
KINDS = {
    "partial": lambda app: plain_task(app).s(9),
    "partial by keyword": lambda app: plain_task(app).s(y=9),
    "immutable": lambda app: plain_task(app).si(7, y=8),
    "from JSON": lambda app: app.signature(PLAIN),
    "a task elsewhere": lambda app: app.signature("other.t", args=(9,), options={"queue": "q"}),
    "untyped": lambda app: plain_task(app, typing=False).s(1, 2, 3),
    "a class": lambda app: app.register_task(Remind()).s(),
    "options of the task": lambda app: plain_task(
        app, expires=30, time_limit=4, serializer="pickle"
    ).s(),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_signature_sends_what_it_sends_one_by_one(delayq_app, url, alike, kind):
    app = delayq_app(url, accept_content=["json", "pickle"])

    alike(KINDS[kind](app), [((), {}), ((), {}), ((1,), {}), ([2], {}), ((), {"y": 3})])


@pytest.fixture
def running(remind):
    """Be a worker that runs a task of a workflow."""
    _task_stack.push(remind)
    remind.push_request(id="the-parent", root_id="the-root", called_directly=False)
    yield remind
    remind.pop_request()
    _task_stack.pop()


def test_tasks_of_a_running_task_have_its_workflow_s_root_and_it_as_their_parent(running, alike):
    headers = [message["headers"] for message in alike(running.s())[b"celery"]]

    assert {(one["root_id"], one["parent_id"]) for one in headers} == {("the-root", "the-parent")}


def test_a_bulk_leaves_no_trail_in_the_running_task(running, delayq):
    delayq.schedule_many(running, ITEMS, at=FAR)

    assert running.request.children == []


IDS = {
    "any text": ({}, ["a", "with blank", 'qu"ote\\', "ü\n", "-"]),
    "letters": ({}, "abcde"),
    "the first is the root of all": ({"root_id": "a"}, "abcde"),
}


@pytest.mark.parametrize("name", IDS)
def test_an_id_of_an_item_s_own_is_where_celery_puts_it(remind, redis, name):
    options, ids = IDS[name]

    singly, together = both_ways(redis, remind.s().set(**options), ids=ids)

    assert together == singly


def test_the_first_item_may_be_the_root_of_the_running_task_s_workflow(running, redis):
    singly, together = both_ways(redis, running.s(), ids=["the-root", "b", "c", "d", "e"])

    assert together == singly


def destination(redis, task_id):
    """The record's part before the header_end: its kind, and where it is bound for."""
    head, _, rest = redis.hget(keys_of(task_id)["records"], task_id).partition(b":")
    return head, rest[: int(head[2:])]


def test_a_broker_of_another_kind_gets_the_same_routes(delayq_app, url, redis, made_by_celery):
    queue = Queue("mail", Exchange("mails", "topic"), routing_key="m.x", max_priority=9)
    app = delayq_app(
        "amqp://127.0.0.1:1//", delayq_url=url, task_queues=[queue], task_default_queue="mail"
    )
    signature = plain_task(app).s().set(priority=3, expires=EXPIRY)
    one_by_one = [app.delayq.schedule(signature.clone(*item), at=FAR).id for item in ITEMS]

    bulk = app.delayq.schedule_many(signature, ITEMS, at=FAR)

    routes = {destination(redis, task_id) for task_id in (*one_by_one, *bulk.ids)}
    assert [kind[:2] for kind, _ in routes] == [b"1R"]
    for one, other in zip(one_by_one, bulk.ids, strict=True):
        singly, together = (
            app.delayq.services.entries.find(task_id).message for task_id in (one, other)
        )
        together = together.replace(other.encode(), one.encode())
        assert comparable(together) == comparable(singly)
    assert len(made_by_celery) == 2


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
def test_a_value_is_not_taken_for_arguments_or_an_id_that_it_equals_by_chance(remind, redis, name):
    signature = remind.s().set(**OF_ONE_TASK[name])

    singly, together = both_ways(redis, signature, [((), {}), *ITEMS], ids="abcdef")

    assert together == singly


# If anything reads a single task's arguments or id, Celery makes every message.


def edit_headers(headers, **_):
    headers["x"] = headers["argsrepr"]


def edit_body(headers, body, **_):
    body[2]["chain"] = [headers["kwargsrepr"]]


@pytest.mark.parametrize("edit", [edit_headers, edit_body])
def test_a_handler_before_publishing_may_edit_every_message(remind, alike, listen, edit):
    listen(signals.before_task_publish, edit)

    alike(remind.s(), made=EVERY)


@pytest.mark.parametrize("signal", ["after_task_publish", "task_sent"])
def test_a_handler_after_publishing_hears_of_every_task(remind, delayq, listen, signal):
    heard = []
    listen(getattr(signals, signal), lambda **given: heard.append(given))

    delayq.schedule_many(remind, ITEMS, at=FAR)

    assert len(heard) == EVERY


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
def test_a_router_sees_every_task_s_arguments(delayq_app, url, alike, name):
    app = delayq_app(url, task_routes=ROUTES[name])

    assert alike(plain_task(app).s(), made=EVERY).keys() == {b"q0", b"q1", b"q2"}


def with_a_router_as_option(app):
    def route(options, name, args, *_):
        return {**options, "queue": app.amqp.queues[f"q{len(args)}"]}

    return plain_task(app).s().set(router=SimpleNamespace(route=route))


class ByArguments(Router):
    def route(self, options, name, args=(), kwargs=None, task_type=None):
        options = {**options, "queue": f"q{len(args)}"}
        return super().route(options, name, args, kwargs, task_type)


def with_a_router_of_the_app(app):
    app.amqp.router = ByArguments(queues=app.amqp.queues, app=app)
    return plain_task(app).s()


class Arguments(Task):
    """Sends to a queue according to the arguments."""

    def apply_async(self, args=None, kwargs=None, **options):
        return super().apply_async(args, kwargs, **{**options, "queue": f"q{len(args)}"})


def with_an_apply_async_of_one_task(app):
    task = plain_task(app)
    send = task.apply_async

    def apply_async(self, args=None, kwargs=None, **options):
        return send(args, kwargs, **{**options, "queue": f"q{len(args)}"})

    task.apply_async = MethodType(apply_async, task)
    return task.s()


def shadow_name(self, args, kwargs, options):
    return f"remind {args}"


class Shadow(Task):
    shadow_name = shadow_name


def with_pydantic_arguments(app):
    task = plain_task(app)
    task._dump_pydantic_arguments = lambda args, kwargs: ([str(args)], {"k": str(kwargs)})
    return task.s()


READERS = {
    "a router as an option": with_a_router_as_option,
    "the app's router": with_a_router_of_the_app,
    "apply_async of a class": lambda app: plain_task(app, base=Arguments).s(),
    "apply_async of one task": with_an_apply_async_of_one_task,
    "shadow_name of a class": lambda app: plain_task(app, base=Shadow).s(),
    "shadow_name as an option": lambda app: plain_task(app, shadow_name=shadow_name).s(),
    "pydantic": with_pydantic_arguments,
}


@pytest.mark.parametrize("name", READERS)
def test_code_that_reads_a_task_s_arguments_sees_those_of_every_task(app, alike, name):
    alike(READERS[name](app), made=EVERY)


class Sends:
    """A callable that is no function."""

    def __init__(self, send):
        self.send = send

    def __call__(self, app, *args, **options):
        return self.send(*args, **options)


@pytest.mark.parametrize("is_bound", [False, True])
def test_a_callable_of_one_app_sees_every_task(app, delayq, remind, is_bound):
    seen = mock.Mock(side_effect=app.send_task)
    app.send_task = MethodType(Sends(seen), app) if is_bound else seen

    delayq.schedule_many(remind, ITEMS, at=FAR)

    assert seen.call_count == EVERY


def test_a_signature_of_another_class_makes_every_message(remind, app, delayq):
    class Signed(Signature):
        def _merge(self, args=None, kwargs=None, options=None, force=False):
            return super()._merge((len(args),), kwargs, options, force)

    items = [((1,), {}), ((1, 2), {}), ((), {})]

    bulk = delayq.schedule_many(Signed(remind, app=app), items, at=FAR)

    assert [delayq.get(task_id).args for task_id in bulk.ids] == [(1,), (2,), (0,)]


def test_an_app_s_own_amqp_makes_every_message(make_app, url, alike):
    class OwnAMQP(AMQP):
        def as_task_v2(self, task_id, name, args=None, *rest, **options):
            return super().as_task_v2(task_id, name, [str(args)], *rest, **options)

    app = make_app(url)
    app.amqp_cls = OwnAMQP
    DelayQ(app)

    alike(plain_task(app).s(), made=EVERY)
    app.delayq.close()


def test_a_backend_that_notes_every_call_hears_of_every_task(app, remind, delayq, monkeypatch):
    noted = []

    def on_task_call(self, producer, task_id):
        noted.append(task_id)

    monkeypatch.setattr(type(app.backend), "on_task_call", on_task_call)

    bulk = delayq.schedule_many(remind, ITEMS, at=FAR)

    assert noted == bulk.ids
