"""`schedule_many` sends the same messages as `schedule`; otherwise it does not take its fast path.

Celery makes the messages of the first two items. If nothing reads a single task's arguments or
id, all other messages are made from these two.
"""

import re
from datetime import datetime, timezone

import pytest
from celery import Task
from celery._state import _task_stack
from celery.canvas import Signature
from kombu import Exchange, Queue

from tests.app.bulk import ITEMS, both_ways, plain_task
from tests.app.support import FAR, comparable
from tests.app.test_contract_messages import SERIALIZERS
from tests.support.shards import keys_of

pytestmark = pytest.mark.libraries

EXPIRY = datetime(2200, 1, 1, tzinfo=timezone.utc)
OPTIONS = {
    "none": {},
    "queue": {"queue": "mail"},
    "queue object": {"queue": Queue("mail", Exchange("mails", "topic"), routing_key="m.x")},
    "priority": {"priority": 7},
    "headers": {"headers": {"trace": "ü", "n": 2**60, "deep": {"a\nb": [None]}}},
    "serializer": {"serializer": "pickle"},
    "compression": {"compression": "zlib"},
    "absolute expiry": {"expires": EXPIRY},
    "expiry as text": {"expires": EXPIRY.isoformat()},
    "relative expiry": {"expires": 60},
    "limits": {"time_limit": 30, "soft_time_limit": 20.5},
    "result wanted": {"ignore_result": False},
    "result not wanted": {"ignore_result": True},
    "link": {"link": Signature("then", args=(1,), kwargs={"ü": 2}, options={"queue": "q"})},
    "link_error": {"link_error": [Signature("oh"), Signature("no")]},
    "chain": {"chain": [Signature("then", immutable=True)]},
    "stamps": {"stamped_headers": ["who"], "who": "me"},
    "shadow": {"shadow": "another name"},
    "retry": {"retry": False, "retry_policy": {"max_retries": 1}},
    "tags": {"delayq_tags": ["a"], "delayq_late": "skip", "delayq_grace": 5 * 10**9},
    "group": {"group_id": "g", "group_index": 3},
    "root": {"root_id": "r", "parent_id": "p"},
    "none at all": {"queue": None, "priority": None, "expires": None},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_options_of_the_signature_are_in_every_message(
    delayq_app, url, redis, made_by_celery, name
):
    app = delayq_app(url, accept_content=SERIALIZERS)
    signature = plain_task(app).s().set(**OPTIONS[name])

    singly, together = both_ways(redis, signature)

    assert together == singly
    assert len(made_by_celery) == 2


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
def test_settings_of_the_app_are_in_every_message(delayq_app, url, redis, made_by_celery, name):
    app = delayq_app(url, accept_content=["json", "pickle"], **SETTINGS[name])

    singly, together = both_ways(redis, plain_task(app).s())

    assert together == singly
    assert len(made_by_celery) == 2


def partial_signature(app):
    return plain_task(app).s(9)


def keyword_signature(app):
    return plain_task(app).s(y=9)


def immutable_signature(app):
    return plain_task(app).si(7, y=8)


def signature_from_json(app):
    return app.signature(
        {"task": "tests.remind", "args": [], "kwargs": {}, "options": {"queue": "q"}}
    )


def name_of_a_task_elsewhere(app):
    return app.signature("elsewhere.t", args=(9,), options={"queue": "q"})


def untyped_task(app):
    return plain_task(app, typing=False).s(1, 2, 3)


def task_class(app):
    class Remind(Task):
        name = "tests.remind"

        def run(self, x=0, y=0):
            return x

    return app.register_task(Remind()).s()


def task_options(app):
    return plain_task(app, expires=30, time_limit=4, serializer="pickle").s()


QUICK = [
    partial_signature,
    keyword_signature,
    immutable_signature,
    signature_from_json,
    name_of_a_task_elsewhere,
    untyped_task,
    task_class,
    task_options,
]


@pytest.mark.parametrize("kind", QUICK)
def test_every_kind_of_signature_sends_what_it_sends_one_by_one(
    delayq_app, url, redis, made_by_celery, kind
):
    signature = kind(delayq_app(url, accept_content=["json", "pickle"]))
    items = [((), {}), ((), {}), ((1,), {}), ([2], {}), ((), {"y": 3})]

    singly, together = both_ways(redis, signature, items)

    assert together == singly
    assert len(made_by_celery) == 2


@pytest.fixture
def running(app):
    """Be a worker that runs a task of a workflow."""
    task = plain_task(app)
    _task_stack.push(task)
    task.push_request(id="the-parent", root_id="the-root", called_directly=False)
    yield task
    task.pop_request()
    _task_stack.pop()


def test_tasks_of_a_running_task_have_its_workflow_s_root_and_it_as_their_parent(
    running, redis, made_by_celery
):
    singly, together = both_ways(redis, running.s())

    assert together == singly
    assert {message["headers"]["root_id"] for message in together[b"celery"]} == {"the-root"}
    assert {message["headers"]["parent_id"] for message in together[b"celery"]} == {"the-parent"}
    assert len(made_by_celery) == 2


def test_a_bulk_leaves_no_trail_in_the_running_task(running, delayq):
    delayq.schedule_many(running, ITEMS, at=FAR)

    assert running.request.children == []


@pytest.mark.parametrize("root", ["option", "running task"])
def test_the_root_of_a_workflow_may_be_the_first_item(app, redis, request, root):
    if root == "option":
        task_id, signature = "a", plain_task(app).s().set(root_id="a")
    else:
        task_id, signature = "the-root", request.getfixturevalue("running").s()

    singly, together = both_ways(redis, signature, ids=[task_id, "b", "c", "d", "e"])

    assert together == singly


@pytest.mark.parametrize("ids", [["a", "with blank", 'qu"ote\\', "ü\n", "-"], "abcde"])
def test_an_id_of_an_item_s_own_is_where_celery_puts_it(app, redis, ids):
    singly, together = both_ways(redis, plain_task(app).s(), ids=ids)

    assert together == singly


def test_a_broker_elsewhere_gets_what_it_gets_one_by_one(
    delayq_app, url, redis, redis_server, made_by_celery
):
    app = delayq_app(url, delayq_url=redis_server.url(7), task_routes={"tests.*": "mail"})

    singly, together = both_ways(redis, plain_task(app).s())

    assert together == singly
    assert len(made_by_celery) == 2


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
